package main

import (
	"encoding/hex"
	"testing"
)

const stored = "000000000000002a00000007000000010000000300000001000000100000000" +
	"53610a68668656c6c6faa38b52e"

func TestARecordIsReadAndEveryChangedBitIsFound(t *testing.T) {
	raw, err := hex.DecodeString(stored)
	if err != nil {
		t.Fatal(err)
	}
	found, err := cutBlock(raw, 3, 42, 42, 1)
	if err != nil || len(found) != 1 || string(found[0].data) != "hello" || found[0].header != 16 {
		t.Fatalf("%v, %v", found, err)
	}
	if found[0].id != (reqID{7, 1, 3, 1}) {
		t.Fatalf("request id %v", found[0].id)
	}
	for bit := range len(raw) * 8 {
		changed := append([]byte(nil), raw...)
		changed[bit/8] ^= 1 << (bit % 8)
		if _, err := cutBlock(changed, 3, 42, 42, 1); err == nil {
			t.Errorf("bit %d was changed and nothing noticed it", bit)
		}
	}
	for size := range raw {
		if _, err := cutBlock(raw[:size], 3, 42, 42, 1); err == nil {
			t.Errorf("a block of %d bytes was taken", size)
		}
	}
	for _, wrong := range []func() ([]record, error){
		func() ([]record, error) { return cutBlock(append(raw, 0), 3, 42, 42, 1) },
		func() ([]record, error) { return cutBlock(raw, 4, 42, 42, 1) },
		func() ([]record, error) { return cutBlock(raw, 3, 41, 41, 1) },
		func() ([]record, error) { return cutBlock(raw, 3, 42, 43, 1) },
	} {
		if _, err := wrong(); err == nil {
			t.Error("a wrong block was taken")
		}
	}
}

func TestHashesOfLocks(t *testing.T) {
	for _, one := range []struct {
		name   string
		number int64
		hash   int32
	}{{"account", 7, -1177318870}, {"account", -7, -1177318869}, {"row", 1<<40 | 3, 112857}} {
		if found := lockHash(one.name, one.number); found != one.hash {
			t.Errorf("%s %d: %d, not %d", one.name, one.number, found, one.hash)
		}
	}
}
