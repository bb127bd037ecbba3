using System.Runtime.CompilerServices;

namespace Quantra.Client.Managed;

/// <summary>Fitted scaling of F features: (x - center) / scale, clipped to [-clip, clip].</summary>
internal sealed record FeatureScaling(double[] Center, double[] Scale, double Clip)
{
    /// <summary>Reads the scaling of <paramref name="features"/> features.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID</exception>
    public static FeatureScaling Read(JsonRecord record, int features)
    {
        var scaling = new FeatureScaling(record.Numbers("center"), record.Numbers("scale"), record.Number("clip"));
        record.End();
        if (scaling.Center.Length != features || scaling.Scale.Length != features)
            throw record.Refusal("center", $"and scale must have {features} numbers each");
        if (!scaling.Scale.All(scale => scale > 0))
            throw record.Refusal("scale", "must hold positive numbers");
        return scaling.Clip > 0 ? scaling : throw record.Refusal("clip", "must be positive");
    }

    /// <summary>Scales values [sessions, F] as <see cref="Apply(int, double, out bool)"/>.</summary>
    [MethodImpl(MethodImplOptions.AggressiveOptimization)]
    public void Apply(ReadOnlySpan<double> values, Span<float> scaled, Span<bool> isKnown)
    {
        for (int cell = 0, feature = 0; cell < values.Length; cell++)
        {
            scaled[cell] = Apply(feature, values[cell], out isKnown[cell]);
            feature = feature + 1 == Center.Length ? 0 : feature + 1;
        }
    }

    /// <summary>Scales one value in float64, then rounds to float32; a value that is not finite becomes 0.</summary>
    /// <param name="feature">Index of the feature.</param>
    /// <param name="value">The value.</param>
    /// <param name="isKnown">Whether it is finite.</param>
    [MethodImpl(MethodImplOptions.AggressiveInlining)]
    public float Apply(int feature, double value, out bool isKnown)
    {
        isKnown = double.IsFinite(value);
        if (!isKnown)
            return 0f;
        var scaled = (value - Center[feature]) / Scale[feature];
        return (float)Math.Clamp(scaled, -Clip, Clip);
    }
}
