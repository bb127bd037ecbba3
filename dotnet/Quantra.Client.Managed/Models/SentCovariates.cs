namespace Quantra.Client.Managed;

/// <summary>Covariates of a request, checked and moved to the sessions that a forecast depends on.</summary>
internal sealed class SentCovariates
{
    /// <summary>No covariates.</summary>
    public static readonly SentCovariates None = new();

    /// <summary>[S, B] each.</summary>
    public Dictionary<string, double[]> Observed { get; private init; } = [];

    /// <summary>[S, B + D] each.</summary>
    public Dictionary<string, double[]> Known { get; private init; } = [];

    /// <summary>[S] each.</summary>
    public Dictionary<string, double[]> Numbers { get; private init; } = [];

    /// <summary>One text per symbol each; empty = unknown.</summary>
    public Dictionary<string, string[]> Categories { get; private init; } = [];

    public bool IsEmpty => Observed.Count + Known.Count + Numbers.Count + Categories.Count == 0;

    /// <summary>Checks that a request has exactly the covariates that a model reads, in the shapes of its bars.</summary>
    /// <exception cref="QuantraException">COVARIATES_INVALID, COVARIATE_MISSING, UNKNOWN_COVARIATE or MALFORMED_REQUEST.</exception>
    public static void Check(IReadOnlyList<CovariateInfo> needs, Covariates sent, RawBars bars)
    {
        CheckValues(sent, bars);
        var groups = new Dictionary<string, string>(StringComparer.Ordinal);
        foreach (var (names, group) in Groups(sent))
        {
            foreach (var name in names)
                groups[name] = group;
        }

        foreach (var need in needs)
        {
            var group = GroupOf(need);
            if (groups.GetValueOrDefault(need.Name) == group)
                continue;
            var how = groups.TryGetValue(need.Name, out var other) ? $"sent as {other}" : "not sent";
            throw PredictionError.CovariateMissing(
                $"covariate {need.Name} is {how}, but the model reads it as {group}; send it with the bars",
                ("covariate", need.Name),
                ("group", need.Group.ToString().ToLowerInvariant())).ToException();
        }

        string[] read = [.. needs.Select(need => need.Name)];
        foreach (var name in groups.Keys)
        {
            if (!read.Contains(name, StringComparer.Ordinal))
                throw PredictionError.UnknownCovariate(name, $"the model does not read covariate {name}; it reads {(read.Length > 0 ? string.Join(", ", read) : "none")}").ToException();
        }

        if (!sent.FutureSessions.IsEmpty && Day.Of(sent.FutureSessions.Span[0]) <= bars.SentSessions[^1])
        {
            var first = Day.Show(Day.Of(sent.FutureSessions.Span[0]));
            throw PredictionError.Covariates($"future_sessions begin {first}, but must come after the last bar, {Day.Show(bars.SentSessions[^1])}").ToException();
        }
    }

    /// <summary>Selects covariates by name.</summary>
    public static Covariates Only(Covariates sent, IReadOnlyCollection<string> names)
    {
        return sent with { Observed = Of(sent.Observed), Known = Of(sent.Known), Numbers = Of(sent.Numbers), Categories = Of(sent.Categories) };

        Dictionary<string, T> Of<T>(IReadOnlyDictionary<string, T> group) =>
            group.Where(one => names.Contains(one.Key, StringComparer.Ordinal)).ToDictionary(one => one.Key, one => one.Value, StringComparer.Ordinal);
    }

    /// <summary>Moves checked covariates to other sessions; values on new sessions are NaN.</summary>
    /// <param name="sent">The covariates.</param>
    /// <param name="have">Sessions of the bars.</param>
    /// <param name="dates">The sessions that a forecast depends on, and those that follow.</param>
    /// <param name="symbols">Number of symbols.</param>
    /// <exception cref="QuantraException">COVARIATE_MISSING: a known covariate does not cover a following session.</exception>
    public static SentCovariates Move(Covariates sent, int[] have, ForecastDates dates, int symbols)
    {
        int[] axis = [.. have, .. sent.FutureSessions.ToArray().Select(Day.Of)];
        int[] wanted = [.. dates.Sessions, .. dates.Following.Span];
        foreach (var name in sent.Known.Keys.Take(1))
            CheckFuture(name, axis, dates.Following.ToArray());
        return new SentCovariates
        {
            Observed = Moved(sent.Observed, have, dates.Sessions),
            Known = Moved(sent.Known, axis, wanted),
            Numbers = sent.Numbers.ToDictionary(one => one.Key, one => one.Value.ToArray(), StringComparer.Ordinal),
            Categories = sent.Categories.ToDictionary(one => one.Key, one => one.Value.ToArray(), StringComparer.Ordinal),
        };

        Dictionary<string, double[]> Moved(IReadOnlyDictionary<string, ReadOnlyMemory<double>> values, int[] from, int[] to)
        {
            var places = Array.ConvertAll(to, day => Math.Max(-1, Array.BinarySearch(from, day)));
            return values.ToDictionary(one => one.Key, one => MoveColumn(one.Value.Span, from.Length, places, symbols), StringComparer.Ordinal);
        }
    }

    /// <summary>Warnings about covariates that are unknown on all sessions.</summary>
    public IEnumerable<string> Warnings(IReadOnlyList<string> symbols)
    {
        foreach (var (name, values) in Observed.Concat(Known))
        {
            var length = values.Length / symbols.Count;
            string[] absent = [.. symbols.Where((_, row) => Array.TrueForAll(values[(row * length)..((row + 1) * length)], double.IsNaN))];
            if (absent.Length > 0)
                yield return $"{PredictionError.Listed(absent)}: {name} is unknown on all sessions, and the forecast is made without it";
        }
    }

    private static IEnumerable<(IEnumerable<string> Names, string Group)> Groups(Covariates sent) =>
    [
        (sent.Observed.Keys, "observed"),
        (sent.Known.Keys, "known"),
        (sent.Numbers.Keys, "a static number"),
        (sent.Categories.Keys, "a static text"),
    ];

    /// <summary>The group in which a request must contain a covariate, for messages.</summary>
    public static string GroupOf(CovariateInfo need) => need.Group switch
    {
        CovariateGroup.Observed => "observed",
        CovariateGroup.Known => "known",
        _ => need.Categories.Count > 0 ? "a static text" : "a static number",
    };

    private static void CheckValues(Covariates sent, RawBars bars)
    {
        var future = sent.FutureSessions.Length;
        CheckGroup("observed", sent.Observed, [bars.Symbols.Count, bars.SentSessions.Length]);
        CheckGroup("known", sent.Known, [bars.Symbols.Count, bars.SentSessions.Length + future]);
        CheckGroup("numbers", sent.Numbers, [bars.Symbols.Count]);
        foreach (var (name, texts) in sent.Categories)
        {
            if (texts.Count != bars.Symbols.Count)
            {
                throw PredictionError.Malformed(
                    FormattableString.Invariant($"covariates.categories {name}: have {texts.Count} texts, need {bars.Symbols.Count}, one per symbol"),
                    ("field", "covariates.categories")).ToException();
            }
        }

        string[] twice = [.. Groups(sent).SelectMany(group => group.Names).GroupBy(name => name, StringComparer.Ordinal).Where(group => group.Count() > 1).Select(group => group.Key).Order(StringComparer.Ordinal)];
        if (twice.Length > 0)
            throw PredictionError.Covariates($"covariates [{string.Join(", ", twice.Select(name => $"'{name}'"))}] are in two groups; put each into one").ToException();
        for (var index = 1; index < future; index++)
        {
            if (sent.FutureSessions.Span[index] <= sent.FutureSessions.Span[index - 1])
                throw PredictionError.Covariates("future_sessions must be in strictly ascending order").ToException();
        }
    }

    private static void CheckGroup(string group, IReadOnlyDictionary<string, ReadOnlyMemory<double>> values, int[] shape)
    {
        var need = shape.Aggregate(1, (product, length) => product * length);
        foreach (var (name, array) in values)
        {
            if (array.Length != need)
            {
                throw PredictionError.Malformed(
                    FormattableString.Invariant($"covariates.{group} {name}: have {array.Length * 8L} bytes, need {need * 8L} ({string.Join(" x ", shape)} values of 8 bytes, float64, little-endian, row-major)"),
                    ("field", $"covariates.{group} {name}")).ToException();
            }

            foreach (var value in array.Span)
            {
                if (double.IsInfinity(value))
                    throw PredictionError.Covariates($"covariate {name} holds infinity; send NaN for an unknown value").ToException();
            }
        }
    }

    private static void CheckFuture(string name, int[] have, int[] need)
    {
        foreach (var day in need.Except(have).Take(1))
        {
            throw PredictionError.CovariateMissing(
                $"known covariate {name} has no value for session {Day.Show(day)}; send future_sessions up to {Day.Show(need[^1])} and a value, or NaN, for each",
                ("covariate", name),
                ("date", Day.Show(day))).ToException();
        }
    }

    private static double[] MoveColumn(ReadOnlySpan<double> values, int length, int[] places, int symbols)
    {
        var moved = new double[symbols * places.Length];
        for (var row = 0; row < symbols; row++)
        {
            for (var index = 0; index < places.Length; index++)
                moved[(row * places.Length) + index] = places[index] < 0 ? double.NaN : values[(row * length) + places[index]];
        }

        return moved;
    }
}
