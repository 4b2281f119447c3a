import java.time.Duration;
import java.util.Collection;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a consumer group (KIP-848), subscribed to the topics that a pattern of the broker's
 * (RE2) matches. It prints what it is assigned, what it loses and what it reads, a line each, and
 * leaves when something comes on its standard input.
 *
 * <p>Arguments: the pattern, and properties as key=value.
 */
public class Member {
    public static void main(String[] arguments) throws Exception {
        var properties = new Properties();
        properties.put("group.protocol", "consumer");
        properties.put("auto.offset.reset", "earliest");
        for (int i = 1; i < arguments.length; i++) {
            var parts = arguments[i].split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        var text = new StringDeserializer();
        try (var consumer = new KafkaConsumer<>(properties, text, text)) {
            consumer.subscribe(new SubscriptionPattern(arguments[0]), new Printer());
            while (System.in.available() == 0) {
                for (var each : consumer.poll(Duration.ofMillis(200))) {
                    print("read", each.topic() + "-" + each.partition() + " " + each.value());
                }
            }
        }
    }

    static void print(String what, Object detail) {
        System.out.println(what + " " + detail);
        System.out.flush();
    }

    static class Printer implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            print("assigned", partitions.stream().map(TopicPartition::toString).sorted().toList());
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            print("revoked", partitions.stream().map(TopicPartition::toString).sorted().toList());
        }
    }
}
