using System.Buffers;
using System.Runtime.CompilerServices;
using System.Text;

namespace Quantra.Client.Hosting.Processes;

/// <summary>Reads a pipe line by line, whatever comes through it: lines of any length and bytes that are no text.</summary>
internal static class PipeLines
{
    private const byte LineEnd = (byte)'\n';

    /// <summary>Every line until the other end is closed.</summary>
    /// <param name="pipe">UTF-8; what is none becomes U+FFFD.</param>
    /// <param name="longest">Bytes of a line that are kept; the rest of a longer one is dropped.</param>
    /// <param name="cancellationToken">Ends the reading.</param>
    public static async IAsyncEnumerable<string> ReadAsync(
        Stream pipe, int longest, [EnumeratorCancellation] CancellationToken cancellationToken = default)
    {
        var buffer = new byte[1 << 16];
        var line = new ArrayBufferWriter<byte>();
        while (await pipe.ReadAsync(buffer, cancellationToken).ConfigureAwait(false) is > 0 and var count)
        {
            for (var start = 0; start < count;)
            {
                var length = buffer.AsSpan(start, count - start).IndexOf(LineEnd);
                var end = length < 0 ? count : start + length;
                line.Write(buffer.AsSpan(start, Math.Min(end - start, longest - line.WrittenCount)));
                if (length >= 0)
                    yield return TextOf(line);
                start = end + 1;
            }
        }

        if (line.WrittenCount > 0)
            yield return TextOf(line);
    }

    /// <summary>The line without its end; what holds it is empty then.</summary>
    private static string TextOf(ArrayBufferWriter<byte> line)
    {
        var text = Encoding.UTF8.GetString(line.WrittenSpan);
        line.ResetWrittenCount();
        return text.EndsWith('\r') ? text[..^1] : text;
    }
}
