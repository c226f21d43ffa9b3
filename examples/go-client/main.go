// A client of Waltz in Go with nothing but its standard library, written from docs/protocol.md and
// docs/zookeeper-layout.md. It appends under a lock, gets a conflict, decides again, and reads everything back.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	zk := flag.String("zookeeper", "127.0.0.1:2181", "host:port of a server of ZooKeeper")
	root := flag.String("root", "/waltz_local", "cluster.root")
	partition := flag.Int("partition", 0, "partition that is used")
	count := flag.Int("count", 1000, "transactions that are appended without a lock")
	flag.Parse()
	if err := run(*zk, *root, int32(*partition), *count); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(zk, root string, partition int32, count int) error {
	keeper, err := openZookeeper(zk)
	if err != nil {
		return err
	}
	defer keeper.close()
	clientID, err := keeper.takeClientID(root)
	if err != nil {
		return err
	}
	address, generation, err := keeper.owner(root, partition)
	if err != nil {
		return err
	}
	c, err := dial(address, clientID, generation, partition)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	before, err := c.highWaterMark()
	if err != nil {
		return err
	}
	if err := c.mount(before); err != nil {
		return err
	}
	fmt.Printf("client %d, generation %d, the log ends at %d\n", clientID, generation, before)

	// Two decisions about one account as of the same view: the second one is refused, and made again.
	lock := []int32{lockHash("account", 7)}
	seen := c.mark
	for _, what := range []string{"deposit 100", "withdraw 30"} {
		asOf := seen
		for {
			found, err := c.append(asOf, lock, 1, []byte(what))
			if err != nil {
				return err
			}
			if found.verdict == verdictLockConflict && found.hash == lock[0] {
				fmt.Printf("%s: conflict with transaction %d of client %d\n", what, found.number, found.winner)
				asOf = c.mark
				continue
			}
			if found.verdict != verdictCommitted {
				return fmt.Errorf("%s: verdict %d: %s", what, found.verdict, found.text)
			}
			fmt.Printf("%s: committed as %d\n", what, found.number)
			break
		}
	}
	for number := 0; number < count; number++ {
		found, err := c.append(c.mark, nil, 2, []byte(fmt.Sprintf("number %d", number)))
		if err != nil {
			return err
		}
		if found.verdict != verdictCommitted {
			return fmt.Errorf("number %d: verdict %d: %s", number, found.verdict, found.text)
		}
	}
	transactions, bytes := 0, 0
	err = c.read(before+1, c.mark, func(one record) {
		transactions++
		bytes += len(one.data)
		if one.header == 1 {
			fmt.Printf("read %d: %s\n", one.transactionID, one.data)
		}
	})
	if err != nil {
		return err
	}
	fmt.Printf("read %d transactions, %d bytes\n", transactions, bytes)
	return nil
}
