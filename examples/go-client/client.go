// A client of one partition: docs/protocol.md, "Clients and servers" and "Version 5".
package main

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand"
	"net"
	"sync"
	"time"
)

const (
	typeMountRequest     = 0
	typeMountResponse    = 1
	typeAppendRequest    = 2
	typeFeedRequest      = 3
	typeFeedData         = 4
	typeFeedSuspended    = 5
	typeMarkRequest      = 11
	typeMarkResponse     = 12
	typeBlockFeedRequest = 32
	typeFeedBlock        = 33
	typeBlockCredit      = 34
	typeBlockFailure     = 36
	typeCloseNotice      = 37
	typeAppendAnswers    = 65

	verdictCommitted    = 0
	verdictLockConflict = 1

	mountReady = 0

	creditTransactions = 1000
	creditBytes        = 1 << 20
	lastBlock          = 1
	timeout            = 60 * time.Second
	keepAliveEvery     = 20 * time.Second
)

// answer is what a server says of an append.
type answer struct {
	verdict int8
	number  int64
	// of a lock conflict: the lock, and who took it
	hash, winner int32
	text         string
}

// client follows one partition. mark is the last transaction that its feed has brought.
type client struct {
	conn    net.Conn
	writing sync.Mutex
	in      *bufio.Reader
	id      reqID
	mountID reqID
	mark    int64
	answers map[int32]answer
}

func dial(address string, clientID, generation, partition int32) (*client, error) {
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return nil, err
	}
	if err := hello(conn); err != nil {
		conn.Close()
		return nil, err
	}
	id := reqID{clientID, generation, partition, rand.Int31n(1 << 30)}
	c := &client{conn: conn, in: bufio.NewReader(conn), id: id, answers: map[int32]answer{}}
	go c.keepAlive()
	return c, nil
}

// keepAlive sends an empty frame now and then until the connection is closed: a server closes one that is silent.
func (c *client) keepAlive() {
	for c.write(nil) == nil {
		time.Sleep(keepAliveEvery)
	}
}

// next is a request id that this client has not used.
func (c *client) next() reqID {
	c.id.seqNum++
	return c.id
}

func (c *client) send(kind int8, id reqID, rest func(*writer)) error {
	w := &writer{}
	w.i8(kind)
	w.reqID(id)
	rest(w)
	return c.write(w.buf)
}

func (c *client) write(body []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.conn.SetWriteDeadline(time.Now().Add(timeout))
	_, err := c.conn.Write(frame(magicClient, protocol, body))
	return err
}

// receive takes one message. Those of the feed and answers to appends are dealt with here; kind is 0 for them.
func (c *client) receive() (kind int8, r *reader, err error) {
	c.conn.SetReadDeadline(time.Now().Add(timeout))
	body, err := readFrame(c.in, magicClient, protocol, maxFrameBytes)
	if err != nil {
		return 0, nil, err
	}
	r = &reader{buf: body}
	kind = r.i8()
	switch kind {
	case typeFeedData:
		r.reqID()
		transactionID := r.i64()
		r.i32()
		if err := r.finish(); err != nil {
			return 0, nil, err
		}
		if transactionID > c.mark+1 {
			return 0, nil, fmt.Errorf("transaction %d came after %d", transactionID, c.mark)
		}
		c.mark = max(c.mark, transactionID)
		return 0, nil, nil
	case typeFeedSuspended:
		return 0, nil, c.askForMore()
	case typeAppendAnswers:
		return 0, nil, c.takeAnswers(r)
	case typeCloseNotice:
		r.reqID()
		code := r.i32()
		return 0, nil, fmt.Errorf("the server closed the connection: %s (%d)", r.text(), code)
	}
	return kind, r, nil
}

// askForMore opens the feed behind the mount, or gives it credit.
func (c *client) askForMore() error {
	return c.send(typeFeedRequest, c.mountID, func(w *writer) { w.i64(c.mark) })
}

func (c *client) takeAnswers(r *reader) error {
	r.i32() // our client id
	for left := r.i32(); left > 0 && r.err == nil; left-- {
		one := answer{verdict: r.i8()}
		r.i32() // generation
		r.i32() // partition
		seqNum := r.i32()
		one.number = r.i64()
		switch one.verdict {
		case verdictCommitted:
			for count, at := r.i32(), int32(0); at < count && r.err == nil; at++ {
				c.answers[seqNum+at] = answer{verdict: verdictCommitted, number: one.number + int64(at)}
			}
			continue
		case verdictLockConflict:
			one.hash, one.winner = r.i32(), r.i32()
		default:
			one.text = r.text()
		}
		c.answers[seqNum] = one
	}
	return r.finish()
}

// highWaterMark is the last transaction of the partition.
func (c *client) highWaterMark() (int64, error) {
	if err := c.send(typeMarkRequest, c.next(), func(*writer) {}); err != nil {
		return 0, err
	}
	for {
		kind, r, err := c.receive()
		if err != nil {
			return 0, err
		}
		if kind == typeMarkResponse {
			r.reqID()
			mark := r.i64()
			return mark, r.finish()
		}
	}
}

// mount takes part in the partition from the transaction after mark on; retried while the server is not ready.
func (c *client) mount(mark int64) error {
	c.mark = mark
	connection := rand.Int63n(1<<37) << 26 // a number of this client, and that of its first connection
	for {
		c.mountID = c.next()
		err := c.send(typeMountRequest, c.mountID, func(w *writer) {
			w.i64(c.mark)
			w.i64(connection)
		})
		if err != nil {
			return err
		}
		for state := int32(-1); state < 0; {
			kind, r, err := c.receive()
			if err != nil {
				return err
			}
			if kind != typeMountResponse {
				continue
			}
			r.reqID()
			state = r.i32()
			if err := r.finish(); err != nil {
				return err
			}
			if state == mountReady {
				return c.askForMore()
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// append sends one transaction, decided as of a transaction, and waits for its answer.
func (c *client) append(asOf int64, writeLocks []int32, header int32, data []byte) (answer, error) {
	id := c.next()
	err := c.send(typeAppendRequest, id, func(w *writer) {
		w.i64(asOf)
		w.i32s(writeLocks)
		w.i32s(nil)
		w.i32s(nil)
		w.i32(header)
		w.bytes(data)
		w.i32(int32(crc32.ChecksumIEEE(data)))
	})
	if err != nil {
		return answer{}, err
	}
	for {
		// "Committed" and "lock conflict" take effect when the feed has reached their number.
		if found, ok := c.answers[id.seqNum]; ok && (found.verdict > verdictLockConflict || found.number <= c.mark) {
			delete(c.answers, id.seqNum)
			return found, nil
		}
		kind, _, err := c.receive()
		if err != nil {
			return answer{}, err
		}
		if kind != 0 {
			return answer{}, fmt.Errorf("a message of type %d while an append is on its way", kind)
		}
	}
}

// read hands the transactions from first to last to a function, with their data.
func (c *client) read(first, last int64, use func(record)) error {
	id := c.next()
	err := c.send(typeBlockFeedRequest, id, func(w *writer) {
		w.i64(first - 1)
		w.i64(last)
		w.i32(creditTransactions)
		w.i64(creditBytes)
		w.i32(0) // flags
		w.i32(0) // headers: all
	})
	if err != nil {
		return err
	}
	for position := first - 1; ; {
		kind, r, err := c.receive()
		if err != nil {
			return err
		}
		switch kind {
		case 0:
		case typeFeedBlock:
			if r.reqID() != id {
				continue // of a feed that is over
			}
			begin, end, count, flags := r.i64(), r.i64(), r.i32(), r.i32()
			if r.err != nil {
				return r.err
			}
			if begin != position+1 || end > last || flags&^lastBlock != 0 {
				return fmt.Errorf("a block from %d to %d where %d is expected", begin, end, position+1)
			}
			size := int64(len(r.buf))
			found, err := cutBlock(r.buf, id.partition, begin, end, count)
			if err != nil {
				return err
			}
			for _, one := range found {
				use(one)
			}
			position = end
			if flags&lastBlock != 0 {
				if position != last {
					return errors.New("a feed has ended too early")
				}
				return nil
			}
			err = c.send(typeBlockCredit, id, func(w *writer) {
				w.i32(count)
				w.i64(size)
			})
			if err != nil {
				return err
			}
		case typeBlockFailure:
			r.reqID()
			code := r.i32()
			return fmt.Errorf("the server ended a feed: %s (%d)", r.text(), code)
		default:
			return fmt.Errorf("a message of type %d while a range is read", kind)
		}
	}
}
