using System.Globalization;
using System.Security.Cryptography;
using System.Text;

namespace Quantra.Client.Wire;

/// <summary>Merges the results of the parts of a split panel.</summary>
internal static class PartMerger
{
    private const int NamedSymbols = 5;
    private const int IdBytes = 8;

    /// <summary>Whether an error means that no symbol of a panel can be forecast. Such an error does not fail the other parts.</summary>
    public static bool IsUnusable(QuantraError? error) => error?.Reason is QuantraReason.NoUsableSymbol or QuantraReason.TooFewBars;

    /// <summary>Merges the results of a request's parts, all from one version of a model.</summary>
    /// <remarks>
    /// Each symbol keeps the values or the refusal of its part. The forecast id is a hash of the parts' ids. A part without a usable
    /// symbol remains only if no part has one.
    /// </remarks>
    public static PredictionResult Merge(string requestId, IReadOnlyList<(IReadOnlyList<string> Symbols, PredictionResult Result)> parts)
    {
        if (parts.Count == 1)
            return parts[0].Result;
        var failures = parts.Where(part => part.Result.Error is not null).ToList();
        if (failures.Count == 0)
            return new(requestId, Merge([.. parts.Select(part => part.Result.Forecast!)]), null);
        foreach (var (symbols, result) in failures)
        {
            if (!IsUnusable(result.Error))
                return new(requestId, null, WithSymbols(result.Error!, symbols));
        }

        var first = failures.Find(part => part.Result.Error!.Reason == QuantraReason.NoUsableSymbol);
        return new(requestId, null, first.Result?.Error ?? failures[0].Result.Error);
    }

    /// <summary>Adds the symbols of the failed part to its error.</summary>
    public static QuantraError WithSymbols(QuantraError error, IReadOnlyList<string> symbols)
    {
        var more = symbols.Count > NamedSymbols ? FormattableString.Invariant($" and {symbols.Count - NamedSymbols} more") : "";
        var metadata = new Dictionary<string, string>(error.Metadata);
        metadata.TryAdd("first_symbol", symbols[0]);
        metadata.TryAdd("last_symbol", symbols[^1]);
        return new(error.Code, error.Reason, $"in the part with {string.Join(", ", symbols.Take(NamedSymbols))}{more}: {error.Message}", metadata);
    }

    /// <summary>Removes the last symbol, which was added only to get a refusal for each of the others.</summary>
    public static Forecast RemoveLast(Forecast forecast)
    {
        var (count, last) = (forecast.Symbols.Count - 1, forecast.Symbols[^1]);
        return forecast with
        {
            Symbols = [.. forecast.Symbols.Take(count)],
            Values = First(forecast.Values)!.Value,
            Returns = First(forecast.Returns),
            Prices = First(forecast.Prices),
            AnchorPrice = First(forecast.AnchorPrice),
            Refusals = forecast.Refusals.Where(item => item.Key != last).ToDictionary().AsReadOnly(),
        };

        ReadOnlyMemory<double>? First(ReadOnlyMemory<double>? values) =>
            values is { } all ? all[..(all.Length / forecast.Symbols.Count * count)] : null;
    }

    private static Forecast Merge(IReadOnlyList<Forecast> forecasts)
    {
        var ids = Encoding.UTF8.GetBytes(string.Join('|', forecasts.Select(item => item.ForecastId)));
        return forecasts[0] with
        {
            Symbols = [.. forecasts.SelectMany(item => item.Symbols)],
            Values = Concatenate(forecasts, item => item.Values)!.Value,
            Returns = Concatenate(forecasts, item => item.Returns),
            Prices = Concatenate(forecasts, item => item.Prices),
            AnchorPrice = Concatenate(forecasts, item => item.AnchorPrice),
            Warnings = [.. forecasts.SelectMany(item => item.Warnings).Distinct()],
            Refusals = forecasts.SelectMany(item => item.Refusals).ToDictionary().AsReadOnly(),
            ForecastId = string.Concat(SHA256.HashData(ids).Take(IdBytes).Select(item => item.ToString("x2", CultureInfo.InvariantCulture))),
        };
    }

    /// <summary>Concatenates the rows of all parts; null if a part has none.</summary>
    private static ReadOnlyMemory<double>? Concatenate(IReadOnlyList<Forecast> forecasts, Func<Forecast, ReadOnlyMemory<double>?> select)
    {
        var merged = new double[forecasts.Sum(item => select(item)?.Length ?? 0)];
        var at = 0;
        foreach (var forecast in forecasts)
        {
            if (select(forecast) is not { } rows)
                return null;
            rows.Span.CopyTo(merged.AsSpan(at));
            at += rows.Length;
        }

        return merged;
    }
}
