import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.HashMap;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Copies the topic `lines` to `shouted`, in capitals. Arguments: servers, guarantee, checkpoints. */
public class FlinkShout {
    public static void main(String[] arguments) throws Exception {
        var directory = Path.of(arguments[2]);
        var config = new HashMap<String, String>();
        config.put("execution.checkpointing.interval", "1s");
        config.put("execution.checkpointing.dir", directory.toUri().toString());
        config.put(
                "execution.checkpointing.externalized-checkpoint-retention",
                "RETAIN_ON_CANCELLATION");
        config.put("restart-strategy.type", "fixed-delay");
        config.put("restart-strategy.fixed-delay.attempts", "20");
        config.put("restart-strategy.fixed-delay.delay", "1s");
        var newest = newest(directory);
        if (newest != null) {
            config.put("execution.state-recovery.path", newest.toUri().toString());
        }

        var flow =
                StreamExecutionEnvironment.getExecutionEnvironment(Configuration.fromMap(config))
                        .setParallelism(1);
        var lines =
                KafkaSource.<String>builder()
                        .setBootstrapServers(arguments[0])
                        .setTopics("lines")
                        .setGroupId("shouting")
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setValueOnlyDeserializer(new SimpleStringSchema())
                        .build();
        var shouted =
                KafkaSink.<String>builder()
                        .setBootstrapServers(arguments[0])
                        .setDeliveryGuarantee(DeliveryGuarantee.valueOf(arguments[1]))
                        .setTransactionalIdPrefix("shouting")
                        .setProperty("transaction.timeout.ms", "60000")
                        .setRecordSerializer(
                                KafkaRecordSerializationSchema.builder()
                                        .setTopic("shouted")
                                        .setValueSerializationSchema(new SimpleStringSchema())
                                        .build())
                        .build();
        flow.fromSource(lines, WatermarkStrategy.noWatermarks(), "lines")
                .map(line -> line.toUpperCase())
                .returns(String.class)
                .sinkTo(shouted);
        flow.execute("shout");
    }

    /** The newest checkpoint that is complete, or null. */
    static Path newest(Path directory) throws Exception {
        try (var files = Files.walk(directory)) {
            return files.filter(each -> each.getFileName().toString().equals("_metadata"))
                    .max(Comparator.comparing(each -> each.toFile().lastModified()))
                    .map(Path::getParent)
                    .orElse(null);
        }
    }
}
