import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What member.py does, with Kafka's own client: transaction version 2 where the cluster has it. BOOTSTRAP NAME PARTITIONS ABORTS */
public final class Member {
    private static final String[] OUTPUTS = {"out-a", "out-b"};
    private static volatile boolean going = true;

    public static void main(String[] args) {
        if (args.length == 0) {
            loadClasses();
            return;
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> going = false));
        String name = args[1];
        int partitions = Integer.parseInt(args[2]);
        double aborts = Double.parseDouble(args[3]);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consumer(args[0], name));
                KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producer(args[0], name))) {
            producer.initTransactions();
            consumer.subscribe(List.of("in"));
            Random random = new Random();
            while (going) {
                ConsumerRecords<byte[], byte[]> got = consumer.poll(Duration.ofMillis(50));
                if (!got.isEmpty() && !transaction(consumer, producer, got, partitions, random.nextDouble() < aborts)) {
                    back(consumer);
                }
            }
        } catch (KafkaException error) {
            System.err.println(name + ": " + error);
            Runtime.getRuntime().halt(3);
        }
        Runtime.getRuntime().halt(0);
    }

    /** What a member loads at its start, for an archive of classes (-XX:ArchiveClassesAtExit): no broker is asked. */
    private static void loadClasses() {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(consumer("127.0.0.1:1", "none"));
                KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producer("127.0.0.1:1", "none"))) {
            consumer.subscribe(List.of("in"));
            consumer.poll(Duration.ofMillis(50));
        }
    }

    private static boolean transaction(
            KafkaConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer,
            ConsumerRecords<byte[], byte[]> got, int partitions, boolean takesBack) {
        producer.beginTransaction();
        try {
            for (ConsumerRecord<byte[], byte[]> each : got) {
                String text = each.partition() + ":" + each.offset() + ":" + new String(each.value(), StandardCharsets.UTF_8);
                byte[] value = text.getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(OUTPUTS[0], each.partition(), null, value));
                producer.send(new ProducerRecord<>(OUTPUTS[1], (each.partition() + 1) % partitions, null, value));
            }
            if (takesBack) {
                producer.flush();
                producer.abortTransaction();
                return false;
            }
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            for (TopicPartition each : got.partitions()) {
                positions.put(each, new OffsetAndMetadata(consumer.position(each)));
            }
            producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
            commit(producer);
            return true;
        } catch (ProducerFencedException | InvalidProducerEpochException error) {
            throw error;
        } catch (KafkaException error) {
            producer.abortTransaction();
            return false;
        }
    }

    /** A commit that did not end in time is asked for again: whether it took place is not known before. */
    private static void commit(KafkaProducer<byte[], byte[]> producer) {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException error) {
                System.err.println("a commit takes long: " + error.getMessage());
            }
        }
    }

    private static void back(KafkaConsumer<byte[], byte[]> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition each : consumer.assignment()) {
            OffsetAndMetadata at = committed.get(each);
            consumer.seek(each, at == null ? 0 : at.offset());
        }
    }

    private static Properties consumer(String bootstrap, String name) {
        Properties made = new Properties();
        made.put("bootstrap.servers", bootstrap);
        made.put("group.id", "exactly-once");
        made.put("client.id", name);
        made.put("isolation.level", "read_committed");
        made.put("enable.auto.commit", "false");
        made.put("auto.offset.reset", "earliest");
        made.put("session.timeout.ms", "6000");
        made.put("heartbeat.interval.ms", "1000");
        made.put("max.poll.records", "100");
        made.put("fetch.max.wait.ms", "50");
        made.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        made.put("key.deserializer", ByteArrayDeserializer.class.getName());
        made.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return made;
    }

    private static Properties producer(String bootstrap, String name) {
        Properties made = new Properties();
        made.put("bootstrap.servers", bootstrap);
        made.put("transactional.id", name);
        made.put("client.id", name);
        made.put("transaction.timeout.ms", "10000");
        made.put("delivery.timeout.ms", "10000");
        made.put("request.timeout.ms", "5000");
        made.put("max.block.ms", "20000");
        made.put("linger.ms", "2");
        made.put("key.serializer", ByteArraySerializer.class.getName());
        made.put("value.serializer", ByteArraySerializer.class.getName());
        return made;
    }
}
