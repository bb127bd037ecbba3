namespace Quantra.Client.Managed;

/// <summary>The reference window of contributions, usually the average training day; its observed features are 0.</summary>
/// <param name="Name">Name such as train_mean.</param>
/// <param name="Known">[K] values of every session.</param>
/// <param name="Static">[C]</param>
/// <param name="Location">[H] level of the target, in its unit.</param>
/// <param name="Scale">[H] volatility of the target, positive.</param>
internal sealed record Baseline(string Name, float[] Known, float[] Static, double[] Location, double[] Scale)
{
    /// <summary>Reads the baseline of a manifest.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: a number is missing or impossible.</exception>
    public static Baseline Read(JsonRecord record, InputSizes sizes, int horizons)
    {
        var baseline = new Baseline(record.Text("name"), ConvertToSingle("known", sizes.Known), ConvertToSingle("static", sizes.Static), Take("location", horizons), Take("scale", horizons));
        record.End();
        return Array.TrueForAll(baseline.Scale, scale => scale > 0) ? baseline : throw record.Refusal("scale", "must be positive");

        double[] Take(string name, int count)
        {
            var numbers = record.Numbers(name);
            return numbers.Length == count ? numbers : throw record.Refusal(name, $"has {numbers.Length} numbers, but must have {count}");
        }

        float[] ConvertToSingle(string name, int count) => Array.ConvertAll(Take(name, count), number => (float)number);
    }
}
