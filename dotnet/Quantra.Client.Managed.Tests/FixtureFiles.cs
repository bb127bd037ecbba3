using System.IO.Compression;

namespace Quantra.Client.Managed.Tests;

/// <summary>Files of tests/managed_fixtures.py.</summary>
internal static class FixtureFiles
{
    public static byte[] Read(string path)
    {
        var bytes = File.ReadAllBytes(Path.Combine(AppContext.BaseDirectory, "Fixtures", path));
        if (!path.EndsWith(".gz", StringComparison.Ordinal))
            return bytes;
        using var zipped = new GZipStream(new MemoryStream(bytes), CompressionMode.Decompress);
        using var plain = new MemoryStream();
        zipped.CopyTo(plain);
        return plain.ToArray();
    }

    public static Dictionary<string, Tensor> Arrays(string path) => Safetensors.Read(Read(path), path);

    public static JsonRecord Json(string path) => JsonRecord.Parse(Read(path), path);

    public static AdjustedBars Bars(Dictionary<string, Tensor> arrays) => new()
    {
        Symbols = arrays["bars.close"].Shape[0],
        Sessions = arrays["bars.close"].Shape[1],
        Open = arrays["bars.open"].ToDouble(),
        High = arrays["bars.high"].ToDouble(),
        Low = arrays["bars.low"].ToDouble(),
        Close = arrays["bars.close"].ToDouble(),
        Volume = arrays["bars.volume"].ToDouble(),
        Money = arrays["bars.money"].ToDouble(),
    };

    /// <summary>Arrays whose names begin with a prefix, by the rest of the name.</summary>
    public static Dictionary<string, double[]> Group(Dictionary<string, Tensor> arrays, string prefix) => arrays
        .Where(pair => pair.Key.StartsWith(prefix, StringComparison.Ordinal))
        .ToDictionary(pair => pair.Key[prefix.Length..], pair => pair.Value.ToDouble(), StringComparer.Ordinal);

    /// <summary>Fails unless values are NaN and infinite in the same places, and elsewhere within 1e-12 of the larger of value and scale.</summary>
    public static void AssertClose(ReadOnlySpan<double> expected, ReadOnlySpan<double> actual, Func<int, double> scale, string what)
    {
        Assert.Equal(expected.Length, actual.Length);
        for (var k = 0; k < expected.Length; k++)
        {
            var same = expected[k].Equals(actual[k])
                || Math.Abs(expected[k] - actual[k]) <= 1e-12 * Math.Max(Math.Abs(expected[k]), scale(k));
            Assert.True(same, $"{what}: value {k} is {actual[k]:R}, expected {expected[k]:R}");
        }
    }
}
