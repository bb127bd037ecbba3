namespace Quantra.Client;

/// <summary>A request for simulated price paths, and for answers from them.</summary>
/// <param name="Instance">
/// The model, and bars with their past: at least 290 sessions and the longest horizon. All bars are sent, because all of them count.
/// </param>
public sealed record PathSimulationRequest(PredictionRequest Instance)
{
    private readonly int _paths = 1000;
    private readonly long _seed;
    private readonly int? _day;
    private readonly double _level = 0.99;

    /// <summary>Number of paths.</summary>
    /// <value>At least 1; 1,000 by default.</value>
    public int Paths
    {
        get => _paths;
        init
        {
            ArgumentOutOfRangeException.ThrowIfLessThan(value, 1);
            _paths = value;
        }
    }

    /// <summary>Seed of the draw of past days. The same seed gives the same paths.</summary>
    /// <value>At least 0; 0 by default.</value>
    public long Seed
    {
        get => _seed;
        init
        {
            ArgumentOutOfRangeException.ThrowIfNegative(value);
            _seed = value;
        }
    }

    /// <summary>The day of the answers, 1 = the first session after the last bar; null = the longest horizon.</summary>
    /// <value>At least 1.</value>
    public int? Day
    {
        get => _day;
        init
        {
            if (value is { } day)
                ArgumentOutOfRangeException.ThrowIfLessThan(day, 1, nameof(value));
            _day = value;
        }
    }

    /// <summary>Level of the value at risk and of the expected shortfall.</summary>
    /// <value>Between 0 and 1; 0.99 by default.</value>
    public double Level
    {
        get => _level;
        init => _level = value is > 0 and < 1
            ? value
            : throw new ArgumentOutOfRangeException(nameof(value), value, "the level is not between 0 and 1; 0.99 means 99 %");
    }

    /// <summary>The value of each position today, in any currency; negative if it is short.</summary>
    /// <value>Empty by default: no value at risk, expected shortfall and drawdown.</value>
    public IReadOnlyDictionary<string, double> Holdings { get; init; } = new Dictionary<string, double>();

    /// <summary>Prices whose probabilities to return.</summary>
    public IReadOnlyList<PriceLevel> PriceLevels { get; init; } = [];

    /// <summary>Whether to return the paths too.</summary>
    public bool IncludePaths { get; init; }

    /// <inheritdoc/>
    public bool Equals(PathSimulationRequest? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "1000 paths, seed 0: forecast by small of bars of AAPL; 900 sessions, 2009-08-05 to 2013-03-01".</returns>
    public override string ToString() => FormattableString.Invariant($"{MessageFormat.Count(Paths, "path")}, seed {Seed}: {Instance}");

    private object?[] Parts() =>
    [
        Instance,
        Paths,
        Seed,
        Day,
        Level,
        ValueEquality.Of(Holdings),
        ValueEquality.Of(PriceLevels),
        IncludePaths,
    ];
}
