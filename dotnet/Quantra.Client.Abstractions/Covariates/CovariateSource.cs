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
    private const int MostClosed = 15; // weekdays on which an exchange may be closed, besides one for every second session

    private readonly Dictionary<string, CovariateSeries> _series;
    private readonly IReadOnlyDictionary<string, Dictionary<string, string>> _statics;
    private readonly IReadOnlyList<string> _symbols;

    private CovariateSource(
        Dictionary<string, CovariateSeries> series,
        IReadOnlyDictionary<string, Dictionary<string, string>> statics,
        IReadOnlyList<string> symbols) => (_series, _statics, _symbols) = (series, statics, symbols);

    /// <summary>Reads CSV files; header names in any case.</summary>
    /// <param name="paths">
    /// Files with one row per statement: symbol or ticker (a file without this column is about all symbols), date (the day
    /// that the values are about), known_from (the first day by whose close they were known: they are used from the close of
    /// the first session on or after it), then columns of numbers. An empty cell states nothing; "nan" withdraws the value
    /// before.
    /// </param>
    /// <param name="staticPath">
    /// A file with one row per symbol: symbol or ticker, then columns of numbers or texts; an empty cell is unknown. Null = none.
    /// </param>
    /// <returns>All covariates of the files.</returns>
    /// <exception cref="QuantraException">COVARIATES_INVALID: the message names file, row, column and value.</exception>
    public static CovariateSource ReadCsv(IEnumerable<string> paths, string? staticPath = null)
    {
        ArgumentNullException.ThrowIfNull(paths);
        var files = paths.Select(CovariateFile.ReadDated).ToList();
        var statics = staticPath is null ? new Dictionary<string, Dictionary<string, string>>() : CovariateFile.ReadStatic(staticPath);
        var series = new Dictionary<string, CovariateSeries>();
        foreach (var one in files.SelectMany(file => file.Series))
        {
            if (statics.ContainsKey(one.Name) || !series.TryAdd(one.Name, one))
                throw QuantraError.BadCovariates($"covariate {one.Name} appears twice; use each name once across all files").ToException();
        }

        var symbols = files.SelectMany(file => file.Symbols).Concat(statics.Values.SelectMany(texts => texts.Keys));
        return new CovariateSource(series, statics, [.. symbols.Distinct()]);
    }

    /// <summary>The values that a model needs with one symbol's bars; see the other overload.</summary>
    /// <param name="model">What the model needs.</param>
    /// <param name="bars">The bars to send.</param>
    /// <returns>What goes into <see cref="PredictionRequest.Covariates"/>.</returns>
    public Covariates ForModel(ModelInfo model, BarSeries bars)
    {
        ArgumentNullException.ThrowIfNull(bars);
        return ForModel(model, bars.ToPanel());
    }

    /// <summary>The values that a model needs with these bars, as known at the close of the last one.</summary>
    /// <remarks>
    /// Columns that the model does not read are left out; one that it reads and no file has stays missing, and the predictor
    /// names it. Future values are given for enough days: the model's calendar picks its sessions.
    /// </remarks>
    /// <param name="model">What the model needs.</param>
    /// <param name="bars">The bars to send.</param>
    /// <returns>What goes into <see cref="PredictionRequest.Covariates"/>.</returns>
    /// <exception cref="QuantraException">
    /// COVARIATES_INVALID: a symbol differs from the bars' in letter case alone, or a text stands where a number is needed.
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
        CovariateSeries[] known = [.. SeriesOf(needs[CovariateGroup.Known])];
        DateOnly[] future = known.Length > 0 ? DaysAfter(last, model) : [];
        DateOnly[] axis = [.. sessions, .. future];
        var statics = needs[CovariateGroup.Static].Where(need => _statics.ContainsKey(need.Name)).ToLookup(need => need.Categories.Count > 0);
        return new Covariates
        {
            Observed = SeriesOf(needs[CovariateGroup.Observed]).ToDictionary(one => one.Name, one => Memory(one.AsOf(bars.Symbols, bars.Sessions.Span))).AsReadOnly(),
            Known = known.ToDictionary(one => one.Name, one => Memory(one.OfDays(bars.Symbols, axis, last))).AsReadOnly(),
            FutureSessions = future,
            Numbers = statics[false].ToDictionary(need => need.Name, need => Memory(NumbersOf(need.Name, bars.Symbols))).AsReadOnly(),
            Categories = statics[true].ToDictionary(need => need.Name, need => TextsOf(need.Name, bars.Symbols)).AsReadOnly(),
        };
    }

    private static ReadOnlyMemory<double> Memory(double[] values) => values;

    /// <summary>Enough days to contain the sessions that a model reaches: all of them, or Mondays to Fridays of any exchange.</summary>
    private static DateOnly[] DaysAfter(DateOnly day, ModelInfo model) => model.Calendar == EveryDay
        ? [.. Enumerable.Range(1, model.FutureLength).Select(day.AddDays)]
        : WeekdaysAfter(day, model.FutureLength);

    /// <summary>Mondays to Fridays, enough of them to contain that many sessions of any exchange.</summary>
    private static DateOnly[] WeekdaysAfter(DateOnly day, int sessions) =>
        [.. Enumerable.Range(1, int.MaxValue)
            .Select(day.AddDays)
            .Where(one => one.DayOfWeek is not (DayOfWeek.Saturday or DayOfWeek.Sunday))
            .Take(sessions + (sessions / 2) + MostClosed)];

    /// <summary>NaN for an empty text, null for one that is not a finite number.</summary>
    private static double? Number(string text)
    {
        if (text.Length == 0)
            return double.NaN;
        return double.TryParse(text, NumberStyles.Float, CultureInfo.InvariantCulture, out var value) && !double.IsInfinity(value)
            ? value
            : null;
    }

    private IEnumerable<CovariateSeries> SeriesOf(IEnumerable<CovariateInfo> needs) =>
        needs.Where(need => _series.ContainsKey(need.Name)).Select(need => _series[need.Name]);

    private IReadOnlyList<string> TextsOf(string name, IReadOnlyList<string> symbols) =>
        [.. symbols.Select(symbol => _statics[name].GetValueOrDefault(symbol, ""))];

    private double[] NumbersOf(string name, IReadOnlyList<string> symbols)
    {
        foreach (var (symbol, text) in _statics[name])
        {
            if (Number(text) is null)
            {
                throw QuantraError.BadCovariates(
                    $"static covariate {name} must be a number for every symbol, but that of {symbol} is '{text}'; leave the "
                    + "cell empty if it is unknown").ToException();
            }
        }

        return [.. TextsOf(name, symbols).Select(text => Number(text)!.Value)];
    }

    /// <summary>Refuses a symbol that differs from the bars' in letter case alone: its values would silently be unknown.</summary>
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
                    $"the covariates are about {written}, the bars about {symbol}; write the symbol the same way in both").ToException();
            }
        }
    }
}
