namespace Quantra.Client.Testing;

/// <summary>Refuses what no predictor would answer.</summary>
internal static class Check
{
    /// <summary>Names are there, and each once.</summary>
    public static void Symbols(IReadOnlyList<string> symbols)
    {
        ArgumentNullException.ThrowIfNull(symbols);
        if (symbols.Count == 0 || symbols.Any(string.IsNullOrEmpty) || symbols.Distinct().Count() < symbols.Count)
            throw new ArgumentException($"Symbols are {string.Join(", ", symbols)}; give at least one, none empty and none twice", nameof(symbols));
    }

    /// <summary>Trading days ahead, in increasing order.</summary>
    public static void Horizons(IReadOnlyList<int> horizons)
    {
        ArgumentNullException.ThrowIfNull(horizons);
        if (horizons.Count == 0 || horizons[0] < 1 || !IsIncreasing(horizons))
            throw new ArgumentException($"Horizons are {string.Join(", ", horizons)}; give at least one, from 1 on and increasing", nameof(horizons));
    }

    /// <summary>Levels between 0 and 1, in increasing order.</summary>
    public static void Quantiles(IReadOnlyList<double> quantiles)
    {
        ArgumentNullException.ThrowIfNull(quantiles);
        if (quantiles.Count == 0 || quantiles.Any(level => level is not (> 0 and < 1)) || !IsIncreasing(quantiles))
        {
            var given = string.Join(", ", quantiles.Select(level => FormattableString.Invariant($"{level}")));
            throw new ArgumentException($"Quantiles are {given}; give at least one, between 0 and 1 and increasing", nameof(quantiles));
        }
    }

    private static bool IsIncreasing<T>(IReadOnlyList<T> values) =>
        values.Zip(values.Skip(1)).All(pair => Comparer<T>.Default.Compare(pair.First, pair.Second) < 0);
}
