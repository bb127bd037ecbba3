using System.Globalization;

namespace Quantra.Client;

/// <summary>Covariates from CSV files, and their values for one panel of bars.</summary>
/// <example>
/// <code>
/// var files = CovariateSource.ReadCsv(["short_interest.csv", "calendar.csv"], "sectors.csv");
/// var model = await client.GetModelAsync("stock");
/// var request = new PredictionRequest("stock", bars) { Covariates = files.ForModel(model, bars) };
/// </code>
/// </example>
public sealed class CovariateSource
{
    private const string EveryDay = "24/7"; // the calendar without weekends and holidays
    private const int MostClosed = 15; // weekdays on which an exchange may be closed, in addition to one per two sessions

    private readonly Dictionary<string, CovariateSeries> _series;
    private readonly IReadOnlyDictionary<string, Dictionary<string, string>> _statics;
    private readonly IReadOnlyList<string> _symbols;

    private CovariateSource(
        Dictionary<string, CovariateSeries> series,
        IReadOnlyDictionary<string, Dictionary<string, string>> statics,
        IReadOnlyList<string> symbols) => (_series, _statics, _symbols) = (series, statics, symbols);

    /// <summary>Reads CSV files. Header names are case-insensitive.</summary>
    /// <param name="paths">
    /// Files with these columns: symbol or ticker (a file without it applies to all symbols), date (the day that the values are about),
    /// known_from (the first day by whose close they were known; they are used from the close of the first session on or after it), then
    /// columns of numbers. An empty cell has no value; "nan" withdraws the previous value.
    /// </param>
    /// <param name="staticPath">
    /// A file with one row per symbol: symbol or ticker, then columns of numbers or texts. An empty cell is unknown. Null = no file.
    /// </param>
    /// <returns>All covariates of the files.</returns>
    /// <exception cref="QuantraException">COVARIATES_INVALID: the message names file, row, column and value.</exception>
    public static CovariateSource ReadCsv(IEnumerable<string> paths, string? staticPath = null)
    {
        ArgumentNullException.ThrowIfNull(paths);
        var files = paths.Select(CovariateCsvReader.ReadDated).ToList();
        var statics = staticPath is null ? new Dictionary<string, Dictionary<string, string>>() : CovariateCsvReader.ReadStatic(staticPath);
        var series = new Dictionary<string, CovariateSeries>();
        foreach (var one in files.SelectMany(file => file.Series))
        {
            if (statics.ContainsKey(one.Name) || !series.TryAdd(one.Name, one))
                throw QuantraError.BadCovariates($"covariate {one.Name} appears twice; use each name in only one file").ToException();
        }

        var symbols = files.SelectMany(file => file.Symbols).Concat(statics.Values.SelectMany(texts => texts.Keys));
        return new CovariateSource(series, statics, [.. symbols.Distinct()]);
    }

    /// <summary>Selects the values that a model needs with one symbol's bars; see the other overload.</summary>
    /// <param name="model">The model.</param>
    /// <param name="bars">The bars to send.</param>
    /// <returns>Value for <see cref="PredictionRequest.Covariates"/>.</returns>
    public Covariates ForModel(ModelInfo model, BarSeries bars)
    {
        ArgumentNullException.ThrowIfNull(bars);
        return ForModel(model, bars.ToPanel());
    }

    /// <summary>Selects the values that a model needs with these bars, as known at the close of the last one.</summary>
    /// <remarks>
    /// Columns that the model does not read are left out. The predictor reports those that the model needs but no file has. Future values cover
    /// more days than needed, from which the model's calendar picks its sessions.
    /// </remarks>
    /// <param name="model">The model.</param>
    /// <param name="bars">The bars to send.</param>
    /// <returns>Value for <see cref="PredictionRequest.Covariates"/>.</returns>
    /// <exception cref="QuantraException">
    /// COVARIATES_INVALID: a symbol differs from the bars' only in letter case, or a static number is not a number.
    /// </exception>
    public Covariates ForModel(ModelInfo model, BarPanel bars)
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(bars);
        CheckLetters(bars.Symbols);
        var sessions = bars.Sessions.Span;
        if (sessions.IsEmpty)
            throw QuantraError.BadBars("the panel has no sessions").ToException();
        var last = sessions[^1];
        var needs = model.Covariates.ToLookup(need => need.Group);
        CovariateSeries[] known = [.. SelectSeries(needs[CovariateGroup.Known])];
        DateOnly[] future = known.Length > 0 ? ListDaysAfter(last, model) : [];
        DateOnly[] axis = [.. sessions, .. future];
        var statics = needs[CovariateGroup.Static].Where(need => _statics.ContainsKey(need.Name)).ToLookup(need => need.Categories.Count > 0);
        return new Covariates
        {
            Observed = SelectSeries(needs[CovariateGroup.Observed]).ToDictionary(one => one.Name, one => CopyToMemory(one.AsOf(bars.Symbols, bars.Sessions.Span))).AsReadOnly(),
            Known = known.ToDictionary(one => one.Name, one => CopyToMemory(one.OfDays(bars.Symbols, axis, last))).AsReadOnly(),
            FutureSessions = future,
            Numbers = statics[false].ToDictionary(need => need.Name, need => CopyToMemory(CollectNumbers(need.Name, bars.Symbols))).AsReadOnly(),
            Categories = statics[true].ToDictionary(need => need.Name, need => CollectTexts(need.Name, bars.Symbols)).AsReadOnly(),
        };
    }

    private static ReadOnlyMemory<double> CopyToMemory(double[] values) => values;

    /// <summary>Returns enough days to contain the model's future sessions.</summary>
    private static DateOnly[] ListDaysAfter(DateOnly day, ModelInfo model) => model.Calendar == EveryDay
        ? [.. Enumerable.Range(1, model.FutureLength).Select(day.AddDays)]
        : ListWeekdaysAfter(day, model.FutureLength);

    /// <summary>Returns enough weekdays to contain that many sessions of any exchange.</summary>
    private static DateOnly[] ListWeekdaysAfter(DateOnly day, int sessions) =>
        [.. Enumerable.Range(1, int.MaxValue)
            .Select(day.AddDays)
            .Where(one => one.DayOfWeek is not (DayOfWeek.Saturday or DayOfWeek.Sunday))
            .Take(sessions + (sessions / 2) + MostClosed)];

    /// <summary>Parses a number: NaN for an empty text, null for an invalid or infinite one.</summary>
    private static double? ParseNumber(string text)
    {
        if (text.Length == 0)
            return double.NaN;
        return double.TryParse(text, NumberStyles.Float, CultureInfo.InvariantCulture, out var value) && !double.IsInfinity(value)
            ? value
            : null;
    }

    private IEnumerable<CovariateSeries> SelectSeries(IEnumerable<CovariateInfo> needs) =>
        needs.Where(need => _series.ContainsKey(need.Name)).Select(need => _series[need.Name]);

    private IReadOnlyList<string> CollectTexts(string name, IReadOnlyList<string> symbols) =>
        [.. symbols.Select(symbol => _statics[name].GetValueOrDefault(symbol, ""))];

    private double[] CollectNumbers(string name, IReadOnlyList<string> symbols)
    {
        foreach (var (symbol, text) in _statics[name])
        {
            if (ParseNumber(text) is null)
            {
                throw QuantraError.BadCovariates(
                    $"static covariate {name} must be a number for every symbol, but is '{text}' for {symbol}; leave the cell empty if it is "
                    + "unknown").ToException();
            }
        }

        return [.. CollectTexts(name, symbols).Select(text => ParseNumber(text)!.Value)];
    }

    /// <summary>Rejects a symbol that differs from the bars' only in letter case, because its values would silently be unknown.</summary>
    private void CheckLetters(IReadOnlyList<string> symbols)
    {
        var meant = new Dictionary<string, string>(StringComparer.OrdinalIgnoreCase);
        foreach (var symbol in symbols.Except(_symbols))
            meant.TryAdd(symbol, symbol);
        foreach (var written in _symbols.Except(symbols))
        {
            if (meant.TryGetValue(written, out var symbol))
            {
                throw QuantraError.BadCovariates(
                    $"the covariates use {written}, but the bars use {symbol}; write the symbol the same way in both").ToException();
            }
        }
    }
}
