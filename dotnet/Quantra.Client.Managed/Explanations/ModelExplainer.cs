namespace Quantra.Client.Managed;

/// <summary>Explains forecasts of one model. Thread-safe.</summary>
internal sealed class ModelExplainer(Pipeline pipeline, OutputMap output, Baseline baseline, INetwork network)
{
    private const int MostNumbers = 1 << 25;
    private const string ShareKnown = "share of known cells";

    /// <summary>The default first.</summary>
    private readonly IExplainer[] _explainers = CreateAll(network, output, baseline, pipeline.Features);

    /// <summary>Names of the methods, the default first.</summary>
    public string[] Methods => Array.ConvertAll(_explainers, one => one.Method);

    private string[] StaticNames => pipeline.Features.Statics.Names;

    private string[] KnownNames => [.. pipeline.Features.KnownDefinitions.Select(one => one.Name)];

    /// <summary>Forecasts of one window that an explanation by a method needs; 0 for methods whose cost depends on the targets.</summary>
    public int CountForecasts(string method) => FindExplainer(method).Forecasts;

    /// <summary>Explains a prepared request.</summary>
    /// <param name="query">The request.</param>
    /// <param name="method">One of the methods.</param>
    /// <param name="prepared">Its prepared instance.</param>
    /// <param name="template">An attribution of the model.</param>
    /// <param name="limit">Checked between forward passes.</param>
    /// <returns>One attribution per target.</returns>
    /// <exception cref="QuantraException">EXPLAIN_UNSUPPORTED, INVALID_INPUT, NO_USABLE_SYMBOL, REQUEST_TOO_LARGE.</exception>
    public Attribution[] Explain(ExplanationQuery query, string method, PreparedRequest prepared, Attribution template, CallLimit limit)
    {
        var explainer = FindExplainer(method);
        CheckDetail(query, explainer);
        var points = query.Points;
        string[] symbols = query.Request.Symbols.Count > 0 ? [.. query.Request.Symbols] : [.. prepared.Symbols];
        CheckAmong(symbols, prepared.Symbols);
        int[] rows = Array.ConvertAll(symbols, symbol => RowOf(prepared, symbol));
        var refusals = symbols.Where(prepared.Refusals.ContainsKey).ToDictionary(symbol => symbol, symbol => prepared.Refusals[symbol]);
        if (Array.TrueForAll(rows, row => row < 0))
            throw SymbolChecks.NoUsableSymbol([.. symbols.Select(symbol => prepared.Refusals[symbol])]).ToException();
        NetworkInputs?[] windows = Array.ConvertAll(rows, row => row < 0 ? null : SelectWindow(prepared.Inputs, row));
        CheckNumbers(points.Length, [.. windows.OfType<NetworkInputs>()]);
        var distinct = points.Distinct().ToArray();
        var found = Array.ConvertAll(
            windows, window => window is null ? null : explainer.Explain(window, distinct, query.Tolerance, GaussLegendre.NodeCounts, limit));
        var shares = Array.ConvertAll(windows, window => window is null ? null : ComputeShares(window));
        template = template with { Method = explainer.Method, Baseline = explainer.BaselineName, Symbols = symbols, Refusals = refusals };
        return [.. query.Targets.Select((target, index) =>
        {
            var own = Array.ConvertAll(found, one => one?[Array.IndexOf(distinct, points[index])]);
            return Build(template, target, query.Request.Detail, own) with { Internals = [.. CollectInternals(shares, points[index].Horizon)] };
        })];
    }

    /// <summary>Explains the longest horizon's median of every row with a fixed number of nodes.</summary>
    public Contributions[] ExplainMedian(NetworkInputs inputs, int nodes)
    {
        var point = (pipeline.Target.Horizons.Length - 1, output.Anchor);
        return
        [
            .. Enumerable.Range(0, inputs.Rows)
                .Select(row => _explainers[0].Explain(SelectWindow(inputs, row), [point], ExplanationQuery.DefaultTolerance, [nodes], CallLimit.None)[0]),
        ];
    }

    private static IExplainer[] CreateAll(INetwork network, OutputMap output, Baseline baseline, FittedFeatures features)
    {
        var groups = new FeatureGroups(features, HasNeighbours(network));
        return
        [
            network switch
            {
                TreesNetwork trees => new TreeExplainer(trees, output, baseline),
                IDifferentiableNetwork other => new GradientExplainer(other, output, baseline),
                _ => throw new InvalidOperationException($"{network} has no explanation"),
            },
            new ShapleyExplainer(network, output, baseline, groups),
            new OcclusionExplainer(network, output, baseline, groups),
        ];
    }

    private IExplainer FindExplainer(string method) => Array.Find(_explainers, one => one.Method == method)!;

    private static void CheckDetail(ExplanationQuery query, IExplainer explainer)
    {
        var why = explainer switch
        {
            TreeExplainer => "a model of trees reads each feature as one summary of its sessions",
            ShapleyExplainer => "Shapley values are of a feature in all sessions",
            OcclusionExplainer => "occlusion hides a feature in all sessions at once",
            _ => null,
        };
        if (why is not null && query.Request.Detail != ExplanationDetail.Features)
        {
            throw PredictionError.Of(
                QuantraStatus.Unimplemented, QuantraReason.ExplainUnsupported, $"detail is '{query.Detail}', but {why}; ask for 'features'").ToException();
        }
    }

    private NetworkShares? ComputeShares(NetworkInputs window)
    {
        if (network is not IDifferentiableNetwork traced)
            return null;
        using var trace = traced.Trace(window);
        return trace.Shares;
    }

    private static void CheckAmong(string[] symbols, IReadOnlyList<string> among)
    {
        foreach (var group in symbols.GroupBy(symbol => symbol))
        {
            if (!among.Contains(group.Key, StringComparer.Ordinal))
                throw CreateError($"there is no symbol '{group.Key}' to explain; the instance has {PredictionError.Listed(among)}");
            if (group.Count() > 1)
                throw CreateError($"symbol '{group.Key}' appears twice among those to explain; name it once");
        }
    }

    private static void CheckNumbers(int targets, NetworkInputs[] windows)
    {
        var have = (long)targets * windows.Sum(one => ((long)one.Observed.Length + one.Known.Length + one.Static.Length + one.Location.Length + one.Scale.Length) / one.Rows);
        if (have > MostNumbers)
        {
            throw ExplanationQuery.TooLarge(
                $"{targets} targets of {windows.Length} symbols have {have} contributions, more than the limit of {MostNumbers}; ask for fewer targets or symbols",
                ("have", $"{have}"),
                ("most", $"{MostNumbers}"));
        }
    }

    /// <summary>Index of a symbol among the rows of the inputs; -1 if it has no forecast.</summary>
    private static int RowOf(PreparedRequest prepared, string symbol)
    {
        var place = Enumerable.Range(0, prepared.Symbols.Count).First(k => prepared.Symbols[k] == symbol);
        return prepared.Usable[place] ? prepared.Usable.Take(place).Count(one => one) : -1;
    }

    private NetworkInputs SelectWindow(NetworkInputs inputs, int row) => InputRows.WindowOf(
        inputs, row, (network as IPanelNetwork)?.Neighbours, (pipeline.EncoderLength + pipeline.Target.Reach) * pipeline.Sizes.Known);

    private static bool HasNeighbours(INetwork network) => network is IPanelNetwork panel && panel.Neighbours[0].Length > 0;

    /// <summary>An attribution of all symbols; those without a forecast have NaN.</summary>
    private Attribution Build(Attribution template, ExplanationTarget target, ExplanationDetail detail, Contributions?[] found)
    {
        var features = pipeline.Features;
        return template with
        {
            Horizon = target.Horizon,
            Quantile = target.Quantile,
            Unit = pipeline.Target.Kind == TargetKind.LogReturn ? "log return" : "log daily volatility",
            RowNames = [.. features.Names, .. KnownNames, .. StaticNames, "location", "scale", "conformal", .. HasNeighbours(network) ? ["neighbours"] : Array.Empty<string>()],
            RowKinds =
            [
                .. features.Names.Select(_ => RowKind.Observed),
                .. KnownNames.Select(_ => RowKind.Known),
                .. StaticNames.Select(_ => RowKind.Static),
                RowKind.Location,
                RowKind.Scale,
                RowKind.Conformal,
                .. HasNeighbours(network) ? [RowKind.Neighbours] : Array.Empty<RowKind>(),
            ],
            PerRow = Each(SumRows),
            PerTime = detail == ExplanationDetail.Features ? (ReadOnlyMemory<double>?)null : Each(SumSessions),
            Cells = detail == ExplanationDetail.Cells ? Each(one => one.Observed) : (ReadOnlyMemory<double>?)null,
            Prediction = Each(one => [one.Prediction]),
            BaselinePrediction = Each(one => [one.BaselinePrediction]),
            RelativeGap = Each(one => [one.RelativeGap]),
            Converged = Array.ConvertAll(found, one => one?.Converged ?? false),
            Nodes = Array.ConvertAll(found, one => one?.Nodes ?? 0),
        };

        ReadOnlyMemory<double> Each(Func<Contributions, double[]> numbers) => Scatter(Array.ConvertAll(found, one => one is null ? null : numbers(one)));
    }

    /// <summary>Sums contributions to rows; a feature with several columns, such as a category, is one row.</summary>
    private double[] SumRows(Contributions one) =>
    [
        .. SumColumns(one.Observed, pipeline.Features.Names.Length),
        .. SumGroups(SumColumns(one.Known, pipeline.Sizes.Known), pipeline.Features.KnownGroups, KnownNames.Length),
        .. SumGroups(one.Static, pipeline.Features.Statics.Groups, StaticNames.Length),
        one.Location,
        one.Scale,
        one.Conformal,
        .. HasNeighbours(network) ? [one.Neighbours] : Array.Empty<double>(),
    ];

    private double[] SumSessions(Contributions one)
    {
        var (features, known) = (pipeline.Features.Names.Length, pipeline.Sizes.Known);
        return [.. Enumerable.Range(0, one.Observed.Length / features).Select(session =>
            one.Observed.AsSpan(session * features, features).ToArray().Sum() + one.Known.AsSpan(session * known, known).ToArray().Sum())];
    }

    private static double[] SumColumns(double[] cells, int columns)
    {
        var sums = new double[columns];
        for (var cell = 0; cell < cells.Length; cell++)
            sums[cell % columns] += cells[cell];
        return sums;
    }

    private static double[] SumGroups(double[] columns, int[] groups, int count)
    {
        var sums = new double[count];
        for (var column = 0; column < groups.Length; column++)
            sums[groups[column]] += columns[column];
        return sums;
    }

    /// <summary>The weights of the network's layers for one horizon; variables have the names of an attribution's rows.</summary>
    private IEnumerable<NetworkInternal> CollectInternals(NetworkShares?[] found, int horizon)
    {
        if (found.All(one => one is null))
            yield break;
        var (sizes, ahead) = (pipeline.Sizes, pipeline.Target.Lag + pipeline.Target.Horizons[horizon]);
        var (length, observed, known) = (sizes.EncoderLength, pipeline.Features.Names.Length, KnownNames.Length);
        int[] past = [.. Enumerable.Range(0, observed), .. pipeline.Features.KnownGroups.Select(k => observed + k), observed + known];
        yield return Of("selection of past variables", InternalAxis.Inputs, [.. pipeline.Features.Names, .. KnownNames, ShareKnown], one => Mean(one.Past, past, length));
        if (known > 0)
            yield return Of("selection of future variables", InternalAxis.Inputs, KnownNames, one => Mean(one.Future, pipeline.Features.KnownGroups, ahead));
        if (StaticNames.Length > 0)
            yield return Of("selection of static variables", InternalAxis.Inputs, StaticNames, one => Array.ConvertAll(one.Static, share => (double)share));
        string[] sessions = [.. Enumerable.Range(1 - length, length + ahead).Select(k => k > 0 ? FormattableString.Invariant($"+{k}") : FormattableString.Invariant($"{k}"))];
        yield return Of("attention", InternalAxis.Sessions, sessions, one =>
            [.. one.Attention.Skip(horizon * (length + sizes.FutureLength)).Take(sessions.Length).Select(share => (double)share)]);

        NetworkInternal Of(string name, InternalAxis axis, string[] labels, Func<NetworkShares, double[]> shares) =>
            new(name, axis, labels, Scatter(Array.ConvertAll(found, one => one is null ? null : shares(one))));

        static double[] Mean(float[] shares, int[] groups, int rows)
        {
            var means = SumColumns(Array.ConvertAll(shares[..(rows * groups.Length)], share => (double)share / rows), groups.Length);
            return SumGroups(means, groups, groups.Max() + 1);
        }
    }

    /// <summary>Joins the numbers of all symbols; those of a symbol without a forecast are NaN.</summary>
    private static double[] Scatter(double[]?[] rows)
    {
        var width = rows.First(row => row is not null)!.Length;
        return [.. rows.SelectMany(row => row ?? [.. Enumerable.Repeat(double.NaN, width)])];
    }

    private static QuantraException CreateError(string message) => PredictionError.Of(QuantraStatus.InvalidArgument, QuantraReason.InvalidInput, message).ToException();
}
