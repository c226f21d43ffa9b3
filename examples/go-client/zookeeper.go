// As much of ZooKeeper as a client needs: its id, and which server has a partition (docs/zookeeper-layout.md).
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	opGetData     = 4
	opSetData     = 5
	opGetChildren = 8
	opClose       = -11
	errBadVersion = -103
	statBytes     = 68
	versionInStat = 32
)

type zookeeper struct {
	conn net.Conn
	xid  int32
}

func openZookeeper(address string) (*zookeeper, error) {
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(60 * time.Second))
	z := &zookeeper{conn: conn}
	w := &writer{}
	w.i32(0) // protocol version
	w.i64(0) // last transaction seen
	w.i32(10_000)
	w.i64(0) // a new session
	w.bytes(make([]byte, 16))
	w.i8(0)
	if _, err := z.exchange(w.buf); err != nil {
		conn.Close()
		return nil, err
	}
	return z, nil
}

func (z *zookeeper) exchange(body []byte) ([]byte, error) {
	packet := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	if _, err := z.conn.Write(append(packet, body...)); err != nil {
		return nil, err
	}
	size := make([]byte, 4)
	if _, err := io.ReadFull(z.conn, size); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint32(size))
	_, err := io.ReadFull(z.conn, answer)
	return answer, err
}

// call sends one request; the answer, ZooKeeper's error number, and what else went wrong.
func (z *zookeeper) call(op int32, path string, rest func(*writer)) (*reader, int32, error) {
	z.xid++
	w := &writer{}
	w.i32(z.xid)
	w.i32(op)
	w.bytes([]byte(path))
	rest(w)
	answer, err := z.exchange(w.buf)
	if err != nil {
		return nil, 0, err
	}
	r := &reader{buf: answer}
	xid := r.i32()
	r.i64()
	failure := r.i32()
	if r.err == nil && xid != z.xid {
		return nil, 0, fmt.Errorf("ZooKeeper answered request %d with %d", z.xid, xid)
	}
	return r, failure, r.err
}

func (z *zookeeper) get(path string) ([]byte, int32, error) {
	r, failure, err := z.call(opGetData, path, func(w *writer) { w.i8(0) })
	if err == nil && failure != 0 {
		err = fmt.Errorf("ZooKeeper: %s: error %d", path, failure)
	}
	if err != nil {
		return nil, 0, err
	}
	data := r.raw(int(r.i32()))
	stat := &reader{buf: r.raw(statBytes)}
	stat.raw(versionInStat)
	return data, stat.i32(), r.err
}

func (z *zookeeper) children(path string) ([]string, error) {
	r, failure, err := z.call(opGetChildren, path, func(w *writer) { w.i8(0) })
	if err == nil && failure != 0 {
		err = fmt.Errorf("ZooKeeper: %s: error %d", path, failure)
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for left := r.i32(); left > 0 && r.err == nil; left-- {
		names = append(names, r.text())
	}
	return names, r.err
}

// takeClientID raises the last id given out by one, if nobody else has done so meanwhile.
func (z *zookeeper) takeClientID(root string) (int32, error) {
	path := root + "/ids/client"
	for {
		data, version, err := z.get(path)
		if err != nil {
			return 0, err
		}
		r := &reader{buf: data}
		id := r.i32() + 1
		if r.err != nil {
			return 0, r.err
		}
		next := &writer{}
		next.i32(id)
		_, failure, err := z.call(opSetData, path, func(w *writer) {
			w.bytes(next.buf)
			w.i32(version)
		})
		if err != nil || failure == 0 {
			return id, err
		}
		if failure != errBadVersion {
			return 0, fmt.Errorf("ZooKeeper: %s: error %d", path, failure)
		}
	}
}

// owner is the address of the server that has a partition, and the generation in which it has it.
func (z *zookeeper) owner(root string, partition int32) (string, int32, error) {
	data, _, err := z.get(root + "/serverDescriptors")
	if err != nil {
		return "", 0, err
	}
	r := &reader{buf: data}
	r.i8()
	r.i32()
	r.i32()
	serverID, generation := int32(-1), int32(-1)
	for servers := r.i32(); servers > 0 && r.err == nil; servers-- {
		id := r.i32()
		for partitions := r.i32(); partitions > 0 && r.err == nil; partitions-- {
			if found, of := r.i32(), r.i32(); found == partition {
				serverID, generation = id, of
			}
		}
	}
	if r.err != nil {
		return "", 0, r.err
	}
	names, err := z.children(root + "/serverDescriptors")
	if err != nil {
		return "", 0, err
	}
	for _, name := range names {
		data, _, err := z.get(root + "/serverDescriptors/" + name)
		if err != nil {
			return "", 0, err
		}
		r := &reader{buf: data}
		r.i8()
		id := r.i32()
		host := string(r.raw(int(r.i16())))
		port := r.i32()
		if r.err != nil {
			return "", 0, r.err
		}
		if id == serverID {
			return net.JoinHostPort(host, fmt.Sprint(port)), generation, nil
		}
	}
	return "", 0, fmt.Errorf("no server has partition %d", partition)
}

func (z *zookeeper) close() {
	z.xid++
	w := &writer{}
	w.i32(z.xid)
	w.i32(opClose)
	z.exchange(w.buf)
	z.conn.Close()
}
