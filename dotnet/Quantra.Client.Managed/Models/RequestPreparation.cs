namespace Quantra.Client.Managed;

/// <summary>Checks requests of bars and computes a network's inputs. Thread-safe.</summary>
internal sealed class RequestPreparation(Pipeline pipeline)
{
    /// <summary>Known features of the latest sessions, which do not change within a day.</summary>
    private KnownFeatures? _latest;

    /// <summary>Checks a request and computes its inputs.</summary>
    /// <param name="request">A request with bars.</param>
    /// <param name="bars">Its checked bars.</param>
    /// <param name="now">The present; decides whether the last bar's session has closed.</param>
    /// <exception cref="QuantraException">No symbol can be forecast.</exception>
    public PreparedRequest Prepare(PredictionRequest request, RawBars bars, DateTimeOffset now)
    {
        if (pipeline.Covariates.Count > 0 || !request.Covariates.IsEmpty || !request.Covariates.FutureSessions.IsEmpty)
            SentCovariates.Check(pipeline.Covariates, request.Covariates, bars);
        var traded = request.AcceptSuspectBars ? new TradedBars(bars, [], []) : TradedBars.Of(bars);
        var dates = ForecastDates.Read(pipeline, traded.Bars, request, now);
        var covariates = request.Covariates.IsEmpty ? SentCovariates.None : SentCovariates.Move(request.Covariates, bars.SentSessions, dates, bars.Symbols.Count);
        var refusals = new Dictionary<string, QuantraError>(bars.Impossible, StringComparer.Ordinal);
        foreach (var symbol in traded.Idle)
        {
            refusals.Add(symbol, PredictionError.NoUsableSymbol(
                $"{symbol}: did not trade on {Day.Show(dates.AsOf)}: its bar repeats the close before with a volume of 0; send it by itself to forecast from its last traded session"));
        }

        var warnings = new List<string>(traded.Warnings);
        var recent = traded.Bars.OnSessions(dates.Sessions);
        var (adjusted, faults) = BarAdjustment.Adjust(recent);
        if (SuspectFinder.MayBeSuspect(recent, adjusted))
        {
            var judged = DropSuspects(recent, request.AcceptSuspectBars, warnings, refusals);
            if (judged != recent)
            {
                recent = judged;
                (adjusted, faults) = BarAdjustment.Adjust(recent);
            }
        }

        return Encode(dates, covariates, recent, adjusted, faults, warnings, refusals);
    }

    /// <summary>Leaves out single suspect bars, and adds the findings to warnings and refusals.</summary>
    private static RawBars DropSuspects(RawBars recent, bool accepts, List<string> warnings, Dictionary<string, QuantraError> refusals)
    {
        var suspects = SuspectFinder.Find(recent);
        if (accepts)
        {
            warnings.AddRange(suspects.Select(suspect => suspect.ToString()));
            return recent;
        }

        SuspectBars[] others = [.. suspects.Where(suspect => !suspect.Refuses)];
        warnings.AddRange(others.Select(suspect => suspect.Warning));
        foreach (var own in suspects.Where(suspect => suspect.Refuses).GroupBy(suspect => suspect.Symbol))
            refusals[own.Key] = SuspectBars.Error([.. own]);
        return others.Length > 0 ? SuspectFinder.Without(recent, others) : recent;
    }

    private PreparedRequest Encode(
        ForecastDates dates,
        SentCovariates covariates,
        RawBars recent,
        AdjustedBars adjusted,
        Dictionary<int, QuantraError>? faults,
        List<string> warnings,
        Dictionary<string, QuantraError> others)
    {
        var (symbols, sizes, arrays) = (recent.Symbols.Count, pipeline.Sizes, recent.Arrays);
        var (known, states, usable, anchor) = (arrays.Take<int>(symbols), arrays.Take<SymbolState>(symbols), arrays.Take<bool>(symbols), new double[symbols]);
        var inputs = ComputeInputs(dates, covariates, adjusted, known, arrays);
        var refusals = new Dictionary<string, QuantraError>(StringComparer.Ordinal);
        for (var row = 0; row < symbols; row++)
        {
            states[row] = CreateState(recent, inputs, known, row);
            anchor[row] = states[row].LastClose;
            if ((faults?.GetValueOrDefault(row) ?? SymbolChecks.Refusal(pipeline, recent, row, states[row])) is { } refusal)
                refusals.Add(recent.Symbols[row], refusal);
        }

        foreach (var (symbol, refusal) in others)
            refusals[symbol] = refusal;
        if (refusals.Count == symbols)
            throw SymbolChecks.NoUsableSymbol([.. refusals.Values]).ToException();
        for (var row = 0; row < symbols; row++)
            usable[row] = !refusals.ContainsKey(recent.Symbols[row]);
        var every = SymbolChecks.Warnings(pipeline, recent, states, refusals);
        every.AddRange(warnings);
        every.AddRange(dates.Warnings);
        if (!covariates.IsEmpty)
        {
            every.AddRange(covariates.Warnings(recent.Symbols));
            every.AddRange(pipeline.Features.Statics.Warnings(recent.Symbols, covariates.Numbers, covariates.Categories));
        }

        return new PreparedRequest
        {
            Symbols = recent.Symbols,
            Usable = usable,
            Inputs = refusals.Count == 0 ? inputs : InputRows.Select(inputs, usable, (sizes.EncoderLength + sizes.FutureLength) * sizes.Known),
            AsOf = dates.AsOf,
            Sessions = dates.Sessions.AsMemory()[^sizes.EncoderLength..],
            TargetSessions = dates.TargetSessions,
            BaseSession = dates.BaseSession,
            Anchor = anchor,
            Warnings = every,
            Refusals = refusals,
        };
    }

    /// <summary>Computes the inputs of all symbols, and the known values of each one's levels.</summary>
    private NetworkInputs ComputeInputs(ForecastDates dates, SentCovariates covariates, AdjustedBars adjusted, int[] known, CallArrays arrays)
    {
        var (symbols, sizes, horizons) = (adjusted.Symbols, pipeline.Sizes, pipeline.Target.Horizons.Length);
        var cells = symbols * sizes.EncoderLength * sizes.Observed;
        var (observed, mask) = (arrays.Take<float>(cells), arrays.Take<bool>(cells));
        pipeline.Features.Observed(adjusted, covariates.Observed, sizes.EncoderLength, observed, mask);
        var (location, scale) = (arrays.Take<double>(symbols * horizons), arrays.Take<double>(symbols * horizons));
        pipeline.Normaliser.Levels(adjusted, location, scale, known);
        var axis = arrays.Take<int>(sizes.EncoderLength + dates.Following.Length);
        dates.Sessions.AsSpan()[^sizes.EncoderLength..].CopyTo(axis);
        dates.Following.CopyTo(axis.AsMemory(sizes.EncoderLength));
        return new NetworkInputs
        {
            Rows = symbols,
            Observed = observed,
            Known = SelectKnown(axis, covariates.Known, symbols),
            Static = pipeline.Features.Statics.Encode(symbols, covariates.Numbers, covariates.Categories),
            Mask = mask,
            Location = location,
            Scale = scale,
        };
    }

    private float[] SelectKnown(int[] axis, Dictionary<string, double[]> covariates, int symbols)
    {
        if (covariates.Count > 0)
            return pipeline.Features.Known(pipeline.Calendar.FieldsOf(axis), SelectLast(covariates, symbols, axis.Length), out _);
        if (_latest is { } latest && latest.Axis.AsSpan().SequenceEqual(axis))
            return latest.Values;
        var known = pipeline.Features.Known(pipeline.Calendar.FieldsOf(axis), covariates, out _);
        _latest = new([.. axis], known);
        return known;
    }

    private static Dictionary<string, double[]> SelectLast(Dictionary<string, double[]> covariates, int symbols, int count) =>
        covariates.ToDictionary(one => one.Key, one => SelectLast(one.Value, symbols, count));

    private static double[] SelectLast(double[] values, int symbols, int count)
    {
        var (width, last) = (values.Length / symbols, new double[symbols * count]);
        for (var row = 0; row < symbols; row++)
            values.AsSpan((row * width) + width - count, count).CopyTo(last.AsSpan(row * count));
        return last;
    }

    private SymbolState CreateState(RawBars recent, NetworkInputs inputs, int[] known, int row)
    {
        var horizons = pipeline.Target.Horizons.Length;
        var (largest, isFlat, bars) = (0.0, false, 0);
        foreach (var scale in inputs.Scale.AsSpan(row * horizons, horizons))
        {
            largest = double.IsNaN(scale) || double.IsNaN(largest) ? double.NaN : Math.Max(largest, scale);
            isFlat |= scale <= pipeline.Normaliser.Floor;
        }

        for (var session = recent.Count - pipeline.EncoderLength; session < recent.Count; session++)
            bars += recent.IsPresent(row, session) ? 1 : 0;
        return new(bars, known[row], recent.Close[((row + 1) * recent.Count) - 1], largest, isFlat, inputs.MaskOf(row).Contains(true));
    }

    private sealed record KnownFeatures(int[] Axis, float[] Values);
}
