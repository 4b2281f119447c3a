import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.MetadataRecordSerde;

/**
 * Reads each record of a file, one in hexadecimal digits a line, and prints how Kafka writes it again
 * and, behind a blank, as JSON. Without a file it prints each type of record and its highest version.
 */
public class MetadataRecords {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 0) {
            for (var type : MetadataRecordType.values()) {
                var name = type.newMetadataRecord().getClass().getSimpleName();
                System.out.println(type.id() + " " + name + " " + type.highestSupportedVersion());
            }
            return;
        }
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            byte[] bytes = HEX.parseHex(line);
            var serde = MetadataRecordSerde.INSTANCE;
            var read = serde.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), bytes.length);
            var cache = new ObjectSerializationCache();
            var made = ByteBuffer.allocate(serde.recordSize(read, cache));
            serde.write(read, cache, new ByteBufferAccessor(made));
            var json = MetadataJsonConverters.writeJson(read.message(), read.version());
            System.out.println(HEX.formatHex(made.array()) + " " + json);
        }
    }
}
