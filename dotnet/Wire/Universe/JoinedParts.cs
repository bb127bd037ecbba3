using System.Globalization;
using System.Security.Cryptography;
using System.Text;

namespace Quantra.Client.Wire;

/// <summary>One forecast of the parts of a panel that was split, and what is said where one of them failed.</summary>
internal static class JoinedParts
{
    private const int Named = 5;
    private const int IdBytes = 8;

    /// <summary>Whether an error is that of a panel none of whose symbols can be forecast, which is nothing that stops the others.</summary>
    public static bool IsUnusable(QuantraError? error) => error?.Reason is QuantraReason.NoUsableSymbol or QuantraReason.TooFewBars;

    /// <summary>The result of a request from those of its parts, all by one version of a model.</summary>
    /// <remarks>
    /// Every symbol has the numbers, or the reason, that its part gave it. The id of the forecast is a hash of the parts' own. Parts
    /// without any usable symbol are there only if no part has one.
    /// </remarks>
    /// <param name="requestId">Of the request.</param>
    /// <param name="parts">In its order, with their symbols.</param>
    public static PredictionResult Of(string requestId, IReadOnlyList<(IReadOnlyList<string> Symbols, PredictionResult Result)> parts)
    {
        if (parts.Count == 1)
            return parts[0].Result;
        var failures = parts.Where(part => part.Result.Error is not null).ToList();
        if (failures.Count == 0)
            return new(requestId, Joined([.. parts.Select(part => part.Result.Forecast!)]), null);
        foreach (var (symbols, result) in failures)
        {
            if (!IsUnusable(result.Error))
                return new(requestId, null, Naming(result.Error!, symbols));
        }

        var first = failures.Find(part => part.Result.Error!.Reason == QuantraReason.NoUsableSymbol);
        return new(requestId, null, first.Result?.Error ?? failures[0].Result.Error);
    }

    /// <summary>The same error, with the symbols of the call that it ended.</summary>
    public static QuantraError Naming(QuantraError error, IReadOnlyList<string> symbols)
    {
        var more = symbols.Count > Named ? FormattableString.Invariant($" and {symbols.Count - Named} more") : "";
        var facts = new Dictionary<string, string>(error.Metadata);
        facts.TryAdd("first_symbol", symbols[0]);
        facts.TryAdd("last_symbol", symbols[^1]);
        return new(error.Code, error.Reason, $"of the part with {string.Join(", ", symbols.Take(Named))}{more}: {error.Message}", facts);
    }

    /// <summary>The forecast without its last symbol, which was beside the others so that each has a reason of its own.</summary>
    public static Forecast WithoutLast(Forecast forecast)
    {
        var (count, last) = (forecast.Symbols.Count - 1, forecast.Symbols[^1]);
        return forecast with
        {
            Symbols = [.. forecast.Symbols.Take(count)],
            Values = First(forecast.Values)!.Value,
            Returns = First(forecast.Returns),
            Prices = First(forecast.Prices),
            AnchorPrice = First(forecast.AnchorPrice),
            Refusals = forecast.Refusals.Where(one => one.Key != last).ToDictionary().AsReadOnly(),
        };

        ReadOnlyMemory<double>? First(ReadOnlyMemory<double>? values) =>
            values is { } all ? all[..(all.Length / forecast.Symbols.Count * count)] : null;
    }

    private static Forecast Joined(IReadOnlyList<Forecast> forecasts)
    {
        var ids = Encoding.UTF8.GetBytes(string.Join('|', forecasts.Select(one => one.ForecastId)));
        return forecasts[0] with
        {
            Symbols = [.. forecasts.SelectMany(one => one.Symbols)],
            Values = Stacked(forecasts, one => one.Values)!.Value,
            Returns = Stacked(forecasts, one => one.Returns),
            Prices = Stacked(forecasts, one => one.Prices),
            AnchorPrice = Stacked(forecasts, one => one.AnchorPrice),
            Warnings = [.. forecasts.SelectMany(one => one.Warnings).Distinct()],
            Refusals = forecasts.SelectMany(one => one.Refusals).ToDictionary().AsReadOnly(),
            ForecastId = string.Concat(SHA256.HashData(ids).Take(IdBytes).Select(one => one.ToString("x2", CultureInfo.InvariantCulture))),
        };
    }

    /// <summary>The rows of all parts; null where one has none.</summary>
    private static ReadOnlyMemory<double>? Stacked(IReadOnlyList<Forecast> forecasts, Func<Forecast, ReadOnlyMemory<double>?> of)
    {
        var stacked = new double[forecasts.Sum(one => of(one)?.Length ?? 0)];
        var at = 0;
        foreach (var forecast in forecasts)
        {
            if (of(forecast) is not { } rows)
                return null;
            rows.Span.CopyTo(stacked.AsSpan(at));
            at += rows.Length;
        }

        return stacked;
    }
}
