// Frames and values: docs/protocol.md, "Transport and frames".
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	magicHello     = 'H'
	magicClient    = 'L'
	protocol       = 5
	maxFrameBytes  = 64 << 20
	maxHelloBytes  = 64 << 10
	frameHeadBytes = 7
)

// writer builds the body of a frame.
type writer struct{ buf []byte }

func (w *writer) i8(v int8)   { w.buf = append(w.buf, byte(v)) }
func (w *writer) i16(v int16) { w.buf = binary.BigEndian.AppendUint16(w.buf, uint16(v)) }
func (w *writer) i32(v int32) { w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(v)) }
func (w *writer) i64(v int64) { w.buf = binary.BigEndian.AppendUint64(w.buf, uint64(v)) }
func (w *writer) bytes(v []byte) {
	w.i32(int32(len(v)))
	w.buf = append(w.buf, v...)
}
func (w *writer) i32s(v []int32) {
	w.i32(int32(len(v)))
	for _, one := range v {
		w.i32(one)
	}
}

// reader takes a body apart; the first thing that is missing is an error, and everything after it is zero.
type reader struct {
	buf []byte
	err error
}

func (r *reader) raw(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.buf) {
		if r.err == nil {
			r.err = errors.New("a body is cut short")
		}
		return nil
	}
	taken := r.buf[:n]
	r.buf = r.buf[n:]
	return taken
}

func (r *reader) i8() int8 {
	if b := r.raw(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (r *reader) i16() int16 {
	if b := r.raw(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) i32() int32 {
	if b := r.raw(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) i64() int64 {
	if b := r.raw(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *reader) text() string {
	n := r.i32()
	if n == -1 {
		return ""
	}
	return string(r.raw(int(n)))
}

// finish is the error of the body: something was missing, or something is left.
func (r *reader) finish() error {
	if r.err == nil && len(r.buf) > 0 {
		return fmt.Errorf("%d bytes are left over", len(r.buf))
	}
	return r.err
}

func frame(magic byte, version uint16, body []byte) []byte {
	head := append(make([]byte, 0, frameHeadBytes+len(body)), magic)
	head = binary.BigEndian.AppendUint16(head, version)
	head = binary.BigEndian.AppendUint32(head, uint32(len(body)))
	return append(head, body...)
}

// readFrame is the next body; keep-alives (empty frames) are passed over.
func readFrame(from io.Reader, magic byte, version uint16, limit int) ([]byte, error) {
	for {
		head := make([]byte, frameHeadBytes)
		if _, err := io.ReadFull(from, head); err != nil {
			return nil, err
		}
		found := binary.BigEndian.Uint16(head[1:])
		size := int(int32(binary.BigEndian.Uint32(head[3:])))
		if head[0] != magic || found != version || size < 0 || size > limit {
			return nil, fmt.Errorf("a frame with magic %d, version %d, length %d", head[0], found, size)
		}
		if size == 0 {
			continue
		}
		body := make([]byte, size)
		_, err := io.ReadFull(from, body)
		return body, err
	}
}

// hello offers one version, and is an error unless the other side speaks it.
func hello(conn io.ReadWriter) error {
	w := &writer{}
	w.i32(1)
	w.i16(protocol)
	w.bytes([]byte("an example in Go"))
	if _, err := conn.Write(frame(magicHello, 0, w.buf)); err != nil {
		return err
	}
	body, err := readFrame(conn, magicHello, 0, maxHelloBytes)
	if err != nil {
		return err
	}
	r := &reader{buf: body}
	found := false
	for left := r.i32(); left > 0 && r.err == nil; left-- {
		found = r.i16() == protocol || found
	}
	r.text()
	if err := r.finish(); err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("the server does not speak version %d", protocol)
	}
	return nil
}

// reqID is a request id.
type reqID struct{ clientID, generation, partition, seqNum int32 }

func (w *writer) reqID(id reqID) {
	w.i32(id.clientID)
	w.i32(id.generation)
	w.i32(id.partition)
	w.i32(id.seqNum)
}

func (r *reader) reqID() reqID { return reqID{r.i32(), r.i32(), r.i32(), r.i32()} }

// lockHash is the hash of a lock of ASCII letters and a number ("Locks").
func lockHash(name string, number int64) int32 {
	var hash uint32
	for _, unit := range []byte(name) {
		hash = 31*hash + uint32(unit)
	}
	folded := uint64(number)
	return int32(hash ^ uint32(folded^folded>>32))
}

// record is one transaction of a block.
type record struct {
	transactionID int64
	id            reqID
	header        int32
	data          []byte
}

// cutBlock checks every record of a block, which holds all transactions from first to last, and returns them.
func cutBlock(records []byte, partition int32, first, last int64, count int32) ([]record, error) {
	if int64(count) != last-first+1 {
		return nil, fmt.Errorf("a block of %d transactions from %d to %d", count, first, last)
	}
	found := make([]record, 0, min(int(count), len(records)/40))
	for next := first; next <= last; next++ {
		r := &reader{buf: records}
		one := record{transactionID: r.i64(), id: r.reqID(), header: r.i32()}
		size := int(r.i32())
		dataChecksum := uint32(r.i32())
		one.data = r.raw(size)
		checksum := uint32(r.i32())
		if r.err != nil {
			return nil, fmt.Errorf("transaction %d: %w", next, r.err)
		}
		if crc32.ChecksumIEEE(records[:36+size]) != checksum || crc32.ChecksumIEEE(one.data) != dataChecksum {
			return nil, fmt.Errorf("transaction %d: its checksum does not match it", next)
		}
		if one.transactionID != next || one.id.partition != partition {
			return nil, fmt.Errorf("transaction %d of partition %d, where %d of %d is expected",
				one.transactionID, one.id.partition, next, partition)
		}
		found = append(found, one)
		records = r.buf
	}
	if len(records) > 0 {
		return nil, fmt.Errorf("%d bytes are left over in a block", len(records))
	}
	return found, nil
}
