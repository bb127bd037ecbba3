using System.Buffers;
using System.Runtime.CompilerServices;
using System.Text;

namespace Quantra.Client.Hosting.Processes;

/// <summary>Reads lines from a pipe, with lines of any length and with invalid UTF-8.</summary>
internal static class PipeLineReader
{
    private const byte LineEnd = (byte)'\n';

    /// <summary>Yields every line until the pipe is closed.</summary>
    /// <param name="pipe">UTF-8 text. Invalid bytes become U+FFFD.</param>
    /// <param name="maxBytes">Bytes to keep of each line. The rest of a longer line is dropped.</param>
    /// <param name="cancellationToken">Ends the reading.</param>
    public static async IAsyncEnumerable<string> ReadAsync(
        Stream pipe, int maxBytes, [EnumeratorCancellation] CancellationToken cancellationToken = default)
    {
        var buffer = new byte[1 << 16];
        var line = new ArrayBufferWriter<byte>();
        while (await pipe.ReadAsync(buffer, cancellationToken).ConfigureAwait(false) is > 0 and var count)
        {
            for (var start = 0; start < count;)
            {
                var length = buffer.AsSpan(start, count - start).IndexOf(LineEnd);
                var end = length < 0 ? count : start + length;
                line.Write(buffer.AsSpan(start, Math.Min(end - start, maxBytes - line.WrittenCount)));
                if (length >= 0)
                    yield return TakeText(line);
                start = end + 1;
            }
        }

        if (line.WrittenCount > 0)
            yield return TakeText(line);
    }

    /// <summary>Returns the line without its line end, and clears the buffer.</summary>
    private static string TakeText(ArrayBufferWriter<byte> line)
    {
        var text = Encoding.UTF8.GetString(line.WrittenSpan);
        line.ResetWrittenCount();
        return text.EndsWith('\r') ? text[..^1] : text;
    }
}
