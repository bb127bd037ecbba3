namespace Quantra.Client.Testing;

/// <summary>Rejects values that no predictor would return.</summary>
internal static class Check
{
    public static void Symbols(IReadOnlyList<string> symbols)
    {
        ArgumentNullException.ThrowIfNull(symbols);
        if (symbols.Count == 0 || symbols.Any(string.IsNullOrEmpty) || symbols.Distinct().Count() < symbols.Count)
            throw new ArgumentException($"Symbols are {string.Join(", ", symbols)}; set at least one, without empty names and duplicates", nameof(symbols));
    }

    public static void Horizons(IReadOnlyList<int> horizons)
    {
        ArgumentNullException.ThrowIfNull(horizons);
        if (horizons.Count == 0 || horizons[0] < 1 || !IsIncreasing(horizons))
            throw new ArgumentException($"Horizons are {string.Join(", ", horizons)}; set at least one, from 1 on and increasing", nameof(horizons));
    }

    public static void Quantiles(IReadOnlyList<double> quantiles)
    {
        ArgumentNullException.ThrowIfNull(quantiles);
        if (quantiles.Count == 0 || quantiles.Any(level => level is not (> 0 and < 1)) || !IsIncreasing(quantiles))
        {
            var levels = string.Join(", ", quantiles.Select(level => FormattableString.Invariant($"{level}")));
            throw new ArgumentException($"Quantiles are {levels}; set at least one, between 0 and 1 and increasing", nameof(quantiles));
        }
    }

    private static bool IsIncreasing<T>(IReadOnlyList<T> values) =>
        values.Zip(values.Skip(1)).All(pair => Comparer<T>.Default.Compare(pair.First, pair.Second) < 0);
}
