using System.Text;
using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Tests;

/// <summary>Lines read from a pipe.</summary>
public sealed class PipeLineReaderTests
{
    private static CancellationToken Token => TestContext.Current.CancellationToken;

    [Theory]
    [InlineData("one\ntwo\n", "one,two")]
    [InlineData("one\r\n\ntwo", "one,,two")]
    [InlineData("", "")]
    public async Task A_line_ends_with_LF_or_CRLF_or_the_end_of_the_pipe(string written, string lines)
    {
        ArgumentNullException.ThrowIfNull(lines);
        var expected = lines.Length == 0 ? [] : lines.Split(',');
        Assert.Equal(expected, await ReadAsync(Encoding.UTF8.GetBytes(written), 100));
    }

    [Fact]
    public async Task A_long_line_is_truncated_and_the_next_is_complete() =>
        Assert.Equal(["12345", "67"], await ReadAsync("123456789\n67\n"u8.ToArray(), 5));

    [Fact]
    public async Task Invalid_UTF8_is_replaced() =>
        Assert.Equal(["\ufffdé"], await ReadAsync([0xff, .. "é\n"u8], 100));

    [Fact]
    public async Task Lines_longer_than_the_buffer_are_complete()
    {
        var line = new string('x', 200_000);
        Assert.Equal([line, "y"], await ReadAsync(Encoding.UTF8.GetBytes(line + "\ny\n"), 1 << 20));
    }

    private static async Task<List<string>> ReadAsync(byte[] written, int longest)
    {
        using var pipe = new MemoryStream(written);
        var lines = new List<string>();
        await foreach (var line in PipeLineReader.ReadAsync(pipe, longest, Token))
            lines.Add(line);
        return lines;
    }
}
