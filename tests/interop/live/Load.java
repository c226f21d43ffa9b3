import com.wepay.waltz.client.PartitionLocalLock;
import com.wepay.waltz.client.Serializer;
import com.wepay.waltz.client.Transaction;
import com.wepay.waltz.client.TransactionBuilder;
import com.wepay.waltz.client.TransactionContext;
import com.wepay.waltz.client.WaltzClient;
import com.wepay.waltz.client.WaltzClientCallbacks;
import com.wepay.waltz.client.WaltzClientConfig;
import com.wepay.waltz.exception.ClientTimeoutException;

import java.io.FileInputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.yaml.snakeyaml.Yaml;

/**
 * A client of release 0.13.2 that writes to every partition, one transaction at a time, until its standard input ends.
 *
 * Arguments: configuration file, name. Standard output, one event per line, written before or after what it names:
 *   A payload           about to be sent (each attempt has a payload of its own)
 *   C payload           the client reported it as committed
 *   T partition id payload   handed over by the client in commit order
 *   E                   everything has ended, nothing is pending
 * A payload is writer/partition/number.attempt/lock/seen: `seen` is the id of the last transaction with this lock that was
 * applied here before the attempt, -1 for none.
 */
public final class Load {
    private static final int LOCKS = 5;
    private static final int PAUSE_MS = 20;
    private static final int LAST_WAIT_SECONDS = 90;
    private static final PrintStream OUT = new PrintStream(System.out, true);

    private static final Serializer<String> TEXT = new Serializer<String>() {
        @Override
        public byte[] serialize(String text) {
            return text.getBytes(StandardCharsets.US_ASCII);
        }

        @Override
        public String deserialize(byte[] bytes) {
            return new String(bytes, StandardCharsets.US_ASCII);
        }
    };

    private static final Map<String, Long> SEEN = new ConcurrentHashMap<>();
    private static final Map<Integer, Long> APPLIED = new ConcurrentHashMap<>();

    private static volatile boolean stopping = false;

    private Load() {
    }

    public static void main(String[] args) throws Exception {
        Map<Object, Object> settings;
        try (FileInputStream file = new FileInputStream(args[0])) {
            settings = new Yaml().load(file);
        }
        WaltzClient client = new WaltzClient(new Reader(), new WaltzClientConfig(settings));
        int partitions = client.getNumPartitions();
        Thread[] writers = new Thread[partitions];
        for (int partition = 0; partition < partitions; partition++) {
            int own = partition;
            writers[partition] = new Thread(() -> write(client, args[1], own), "writer-" + partition);
            writers[partition].start();
        }
        while (System.in.read() >= 0) {
            // Whatever comes in is no end.
        }
        stopping = true;
        for (Thread writer : writers) {
            writer.join(TimeUnit.SECONDS.toMillis(LAST_WAIT_SECONDS));
            if (writer.isAlive()) {
                throw new IOException(writer.getName() + " waits for an append that does not end");
            }
        }
        OUT.println("E");
        client.close();
        System.exit(0);
    }

    private static void write(WaltzClient client, String name, int partition) {
        for (int number = 0; !stopping; number++) {
            Attempts attempts = new Attempts(name, partition, number);
            try {
                client.submit(attempts);
                attempts.ended.await();
                Thread.sleep(PAUSE_MS);
            } catch (ClientTimeoutException unmounted) {
                number--; // Not mounted within ten seconds, as on a busy machine: nothing was sent.
            } catch (InterruptedException interrupted) {
                return;
            }
        }
    }

    private static final class Attempts extends TransactionContext {
        final CountDownLatch ended = new CountDownLatch(1);
        private final String name;
        private final int partition;
        private final int number;
        private int attempt = 0;
        private volatile String payload;

        Attempts(String name, int partition, int number) {
            this.name = name;
            this.partition = partition;
            this.number = number;
        }

        @Override
        public int partitionId(int numPartitions) {
            return partition;
        }

        @Override
        public boolean execute(TransactionBuilder builder) {
            int lock = number % LOCKS;
            long seen = SEEN.getOrDefault(partition + "/" + lock, -1L);
            payload = name + "/" + partition + "/" + number + "." + attempt++ + "/" + lock + "/" + seen;
            OUT.println("A " + payload);
            builder.setTransactionData(payload, TEXT);
            builder.setWriteLocks(Collections.singletonList(new PartitionLocalLock("register", lock)));
            return true;
        }

        @Override
        public void onCompletion(boolean result) {
            if (result) {
                OUT.println("C " + payload);
            }
            ended.countDown();
        }

        @Override
        public void onException(Throwable exception) {
            System.err.println("append of " + payload + ": " + exception);
            ended.countDown();
        }
    }

    private static final class Reader implements WaltzClientCallbacks {
        @Override
        public long getClientHighWaterMark(int partitionId) {
            return APPLIED.getOrDefault(partitionId, -1L);
        }

        @Override
        public void applyTransaction(Transaction transaction) {
            int partition = transaction.reqId.partitionId();
            String payload = transaction.getTransactionData(TEXT);
            String[] words = payload.split("/");
            if (words.length == 5) { // Other writers, which take no lock, have payloads of another form.
                SEEN.put(partition + "/" + words[3], transaction.transactionId);
            }
            APPLIED.put(partition, transaction.transactionId);
            OUT.println("T " + partition + " " + transaction.transactionId + " " + payload);
        }

        @Override
        public void uncaughtException(int partitionId, long transactionId, Throwable exception) {
            System.err.println("apply of " + partitionId + "/" + transactionId + ": " + exception);
        }
    }
}
