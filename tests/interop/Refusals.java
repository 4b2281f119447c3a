import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractRequest;

/** Writes Kafka's getErrorResponse for each line "API VERSION REQUEST"; "-" for other versions. */
public class Refusals {
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ", -1);
            ApiKeys api = ApiKeys.forId(Integer.parseInt(words[0]));
            short version = Short.parseShort(words[1]);
            boolean known = api.isVersionSupported(version);
            System.out.println(known ? refusal(api, version, words[2]) : "-");
        }
    }

    static String refusal(ApiKeys api, short version, String body) {
        var bytes = new ByteBufferAccessor(ByteBuffer.wrap(HEX.parseHex(body)));
        var request = AbstractRequest.parseRequest(api, version, bytes).request;
        var response = request.getErrorResponse(Errors.TOPIC_AUTHORIZATION_FAILED.exception());
        ByteBuffer made = MessageUtil.toByteBufferAccessor(response.data(), version).buffer();
        byte[] copied = new byte[made.remaining()];
        made.get(copied);
        return HEX.formatHex(copied);
    }
}
