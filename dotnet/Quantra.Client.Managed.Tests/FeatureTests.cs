namespace Quantra.Client.Managed.Tests;

public sealed class FeatureTests
{
    private const int Last = 6;

    public static TheoryData<string> Sets { get; } = ["default", "alpha158", "covariates"];

    public static TheoryData<string> Normalisers { get; } = [.. FixtureFiles.Json("features/normalisers/settings.json").Keys];

    [Theory]
    [MemberData(nameof(Sets))]
    public void Features_equal_those_of_Python(string name)
    {
        var (features, arrays, bars) = Read(name);
        var values = features.Evaluate(bars, FixtureFiles.Group(arrays, "observed."), Last);
        var scale = features.Scale;
        FixtureFiles.AssertClose(arrays["features"].ToDouble(), values, k => scale[k % scale.Length], name);
    }

    [Theory]
    [MemberData(nameof(Sets))]
    public void Scaled_features_and_their_mask_have_the_bits_of_Python(string name)
    {
        var (features, arrays, bars) = Read(name);
        var expected = arrays["scaled"].ToSingle();
        var (scaled, mask) = (new float[expected.Length], new bool[expected.Length]);
        features.Observed(bars, FixtureFiles.Group(arrays, "observed."), Last, scaled, mask);
        Assert.Equal(arrays["mask"].ToBoolean(), mask);
        Assert.Equal(0, scaled.Zip(expected).Count(pair => BitConverter.SingleToInt32Bits(pair.First) != BitConverter.SingleToInt32Bits(pair.Second)));
    }

    [Theory]
    [MemberData(nameof(Sets))]
    public void Known_and_static_columns_have_the_bits_of_Python(string name)
    {
        var (features, arrays, bars) = Read(name);
        var known = features.Known(FixtureFiles.Group(arrays, "calendar."), FixtureFiles.Group(arrays, "known."), out var rows);
        Assert.Equal(arrays["known"].Shape[0], rows);
        Assert.Equal(arrays["known"].ToSingle(), known);
        var categories = FixtureFiles.Json($"features/{name}.categories.json");
        var texts = categories.Keys.ToDictionary(key => key, categories.Texts);
        Assert.Equal(arrays["static"].ToSingle(), features.Statics.Encode(bars.Symbols, FixtureFiles.Group(arrays, "numbers."), texts));
    }

    [Theory]
    [MemberData(nameof(Sets))]
    public void A_symbol_alone_has_the_bits_of_its_panel(string name)
    {
        var (features, arrays, bars) = Read(name);
        var covariates = FixtureFiles.Group(arrays, "observed.");
        var together = features.Evaluate(bars, covariates, Last);
        var cells = together.Length / bars.Symbols;
        for (var symbol = 0; symbol < bars.Symbols; symbol++)
        {
            var own = covariates.ToDictionary(pair => pair.Key, pair => RowOf(pair.Value, symbol, bars.Sessions));
            Assert.Equal(together[(symbol * cells)..((symbol + 1) * cells)], features.Evaluate(Alone(bars, symbol), own, Last));
        }
    }

    [Fact]
    public void Prices_eight_times_as_high_give_the_same_bits()
    {
        var (features, _, bars) = Read("default");
        var higher = new AdjustedBars
        {
            Symbols = bars.Symbols,
            Sessions = bars.Sessions,
            Open = [.. bars.Open.Select(price => 8 * price)],
            High = [.. bars.High.Select(price => 8 * price)],
            Low = [.. bars.Low.Select(price => 8 * price)],
            Close = [.. bars.Close.Select(price => 8 * price)],
            Volume = bars.Volume,
            Money = [.. bars.Money.Select(money => 8 * money)],
        };
        var none = new Dictionary<string, double[]>();
        var (expected, values) = (features.Evaluate(bars, none, Last), features.Evaluate(higher, none, Last));
        for (var feature = 0; feature < features.Names.Length; feature++)
        {
            var text = features.ObservedDefinitions[feature].Expression;
            if (text.Contains("$money", StringComparison.Ordinal) || text.Contains("Log($close)", StringComparison.Ordinal))
                continue; // of a small constant, or of a logarithm of the level
            for (var k = feature; k < values.Length; k += features.Names.Length)
                Assert.Equal(expected[k], values[k]);
        }
    }

    [Theory]
    [MemberData(nameof(Normalisers))]
    public void Levels_equal_those_of_Python(string name)
    {
        var arrays = FixtureFiles.Arrays("features/normalisers/levels.safetensors");
        var bars = FixtureFiles.Bars(arrays);
        var settings = FixtureFiles.Json("features/normalisers/settings.json").Record(name);
        var target = Target.Read(settings.Record("target"));
        var normaliser = Normaliser.Read(settings.Record("normaliser"), target);
        var cells = bars.Symbols * target.Horizons.Length;
        var (location, scale) = (new double[cells], new double[cells]);
        normaliser.Levels(bars, location, scale, new int[bars.Symbols]);
        FixtureFiles.AssertClose(arrays[$"{name}.location"].ToDouble(), location, _ => 1e-3, "location");
        FixtureFiles.AssertClose(arrays[$"{name}.scale"].ToDouble(), scale, _ => 0, "scale");
        for (var symbol = 0; symbol < bars.Symbols; symbol++)
        {
            foreach (var (stage, values) in normaliser.Stages(bars, symbol))
                FixtureFiles.AssertClose(RowOf(arrays[$"{name}.stage.{stage}"].ToDouble(), symbol, values.Length), values, _ => 1, stage);
        }
    }

    [Fact]
    public void A_changed_expression_is_rejected_with_its_canonical_text()
    {
        var text = System.Text.Encoding.UTF8.GetString(FixtureFiles.Read("features/default.json"));
        var changed = text.Replace("$close / Ref($close, 1)", "$close/Ref($close, 1)", StringComparison.Ordinal);
        Assert.NotEqual(text, changed);
        var error = Assert.Throws<QuantraException>(() => FittedFeatures.Read(JsonRecord.Parse(System.Text.Encoding.UTF8.GetBytes(changed), "features.json")));
        Assert.Equal(QuantraReason.ArtifactInvalid, error.Reason);
        Assert.Contains("must be written as", error.Message, StringComparison.Ordinal);
    }

    private static (FittedFeatures Features, Dictionary<string, Tensor> Arrays, AdjustedBars Bars) Read(string name)
    {
        var arrays = FixtureFiles.Arrays($"features/{name}.safetensors");
        return (FittedFeatures.Read(FixtureFiles.Json($"features/{name}.json")), arrays, FixtureFiles.Bars(arrays));
    }

    private static double[] RowOf(double[] values, int row, int length) => values[(row * length)..((row + 1) * length)];

    private static AdjustedBars Alone(AdjustedBars bars, int symbol) => new()
    {
        Symbols = 1,
        Sessions = bars.Sessions,
        Open = RowOf(bars.Open, symbol, bars.Sessions),
        High = RowOf(bars.High, symbol, bars.Sessions),
        Low = RowOf(bars.Low, symbol, bars.Sessions),
        Close = RowOf(bars.Close, symbol, bars.Sessions),
        Volume = RowOf(bars.Volume, symbol, bars.Sessions),
        Money = RowOf(bars.Money, symbol, bars.Sessions),
    };
}
