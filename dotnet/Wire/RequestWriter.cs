using Google.Protobuf;

namespace Quantra.Client.Wire;

/// <summary>Converts requests to messages of the wire protocol.</summary>
internal static class RequestWriter
{
    public static V1.PredictRequest Predict(ModelReference model, IEnumerable<PredictionRequest> requests) =>
        new() { Model = model.Text, Instances = { requests.Select(Instance) } };

    /// <exception cref="QuantraException">EXPLAIN_UNSUPPORTED: the method is unknown.</exception>
    public static V1.ExplainRequest Explain(ManyExplanationsRequest request) => new()
    {
        Model = request.Instance.Model.Text,
        Instance = Instance(request.Instance),
        Targets = { request.Targets.Select(Target) },
        Method = Method(request.Method),
        Detail = request.Detail switch
        {
            ExplanationDetail.Times => V1.ExplainDetail.Times,
            ExplanationDetail.Cells => V1.ExplainDetail.Cells,
            _ => V1.ExplainDetail.Features,
        },
        Tolerance = request.Tolerance,
        Symbols = { request.Symbols },
    };

    /// <exception cref="QuantraException">EXPLAIN_UNSUPPORTED: the method is unknown.</exception>
    public static V1.ExplainGlobalRequest ExplainGlobal(GlobalExplanationRequest request) => new()
    {
        Model = request.Instances[0].Model.Text,
        Instances = { request.Instances.Select(Instance) },
        Targets = { request.Targets.Select(Target) },
        Method = Method(request.Method),
        Tolerance = request.Tolerance,
    };

    public static V1.SimulatePathsRequest SimulatePaths(PathSimulationRequest request) => new()
    {
        Model = request.Instance.Model.Text,
        Instance = Instance(request.Instance),
        Paths = request.Paths,
        Seed = request.Seed,
        Day = request.Day ?? 0,
        Level = request.Level,
        Holdings = { request.Holdings.Select(one => new V1.Holding { Symbol = one.Key, Value = one.Value }) },
        Prices = { request.PriceLevels.Select(one => new V1.PriceLevel { Symbol = one.Symbol, Price = one.Price }) },
        IncludePaths = request.IncludePaths,
    };

    public static V1.PredictStreamRequest StreamPredict(PredictionRequest request) =>
        new() { Predict = new V1.StreamPredict { Model = request.Model.Text, Instance = Instance(request) } };

    public static V1.PredictStreamRequest OpenSession(string id, SessionRequest request)
    {
        var instance = new V1.Instance { Bars = Bars(request.Bars) };
        instance.Bars.AllowIncompleteLastBar = request.AllowIncompleteLastBar;
        instance.Bars.AcceptSuspectBars = request.AcceptSuspectBars;
        instance.Bars.GapPolicy = Policy(request.GapPolicy);
        if (!request.Covariates.IsEmpty)
            instance.Covariates = Covariates(request.Covariates);
        return new() { Open = new V1.OpenSession { SessionId = id, Model = request.Model.Text, Instance = instance } };
    }

    /// <summary>Converts a push. The gap policy stays that of the opening request.</summary>
    public static V1.PredictStreamRequest PushBars(string id, SessionPush push)
    {
        var pushed = new V1.PushBars { SessionId = id, Flush = push.Flush };
        if (push.Bars is { } bars)
            pushed.Bars = Bars(bars);
        if (!push.Covariates.IsEmpty)
            pushed.Covariates = Covariates(push.Covariates);
        return new() { Push = pushed };
    }

    public static V1.PredictStreamRequest CloseSession(string id) => new() { Close = new V1.CloseSession { SessionId = id } };

    /// <summary>Creates the request that cancels another request of the same stream.</summary>
    public static V1.PredictStreamRequest Cancel(string requestId) => new() { Cancel = new V1.CancelRequest { RequestId = requestId } };

    private static V1.ExplainMethod Method(string name) => name switch
    {
        "" => V1.ExplainMethod.Unspecified,
        "integrated-gradients" => V1.ExplainMethod.IntegratedGradients,
        "tree-shap" => V1.ExplainMethod.TreeShap,
        "shapley" => V1.ExplainMethod.Shapley,
        "occlusion" => V1.ExplainMethod.Occlusion,
        _ => throw new QuantraError(
            QuantraStatus.Unimplemented,
            QuantraReason.ExplainUnsupported,
            $"unknown explanation method '{name}'; use one of integrated-gradients, tree-shap, shapley, occlusion").ToException(),
    };

    private static V1.ExplainTarget Target(ExplanationTarget target) => new() { Horizon = target.Horizon, Quantile = target.Quantile };

    private static V1.Instance Instance(PredictionRequest request)
    {
        var instance = new V1.Instance { RequestId = request.RequestId };
        if (request.Window is { } window)
            instance.Window = Window(window);
        if (request.Bars is { } bars)
        {
            instance.Bars = Bars(bars);
            instance.Bars.AllowIncompleteLastBar = request.AllowIncompleteLastBar;
            instance.Bars.AcceptSuspectBars = request.AcceptSuspectBars;
            instance.Bars.GapPolicy = Policy(request.GapPolicy);
        }

        if (!request.Covariates.IsEmpty)
            instance.Covariates = Covariates(request.Covariates);
        return instance;
    }

    private static V1.BarPanel Bars(BarPanel bars)
    {
        var panel = new V1.BarPanel
        {
            Symbols = { bars.Symbols },
            Open = ArrayBytes.Of(bars.Open),
            High = ArrayBytes.Of(bars.High),
            Low = ArrayBytes.Of(bars.Low),
            Close = ArrayBytes.Of(bars.Close),
            Volume = ArrayBytes.Of(bars.Volume),
            AdjClose = ArrayBytes.Of(bars.AdjustedClose),
            SplitRatio = ArrayBytes.Of(bars.SplitRatio),
            CashDividend = ArrayBytes.Of(bars.CashDividend),
            Calendar = bars.Calendar,
            Currency = bars.Currency,
            Interval = V1.BarInterval.Day,
        };
        SessionNumber.AddTo(panel.SessionYyyymmdd, bars.Sessions.Span);
        return panel;
    }

    private static V1.GapPolicy Policy(GapPolicy policy) => policy switch
    {
        GapPolicy.Mask => V1.GapPolicy.Mask,
        GapPolicy.Ignore => V1.GapPolicy.Ignore,
        _ => V1.GapPolicy.Refuse,
    };

    private static V1.Covariates Covariates(Covariates covariates)
    {
        var wire = new V1.Covariates
        {
            Observed = { covariates.Observed.Select(Values) },
            Known = { covariates.Known.Select(Values) },
            Numbers = { covariates.Numbers.Select(Values) },
            Categories = { covariates.Categories.Select(one => new V1.CovariateTexts { Name = one.Key, Values = { one.Value } }) },
        };
        SessionNumber.AddTo(wire.FutureYyyymmdd, covariates.FutureSessions.Span);
        return wire;
    }

    private static V1.CovariateValues Values(KeyValuePair<string, ReadOnlyMemory<double>> covariate) =>
        new() { Name = covariate.Key, Values = ArrayBytes.Of(covariate.Value) };

    private static V1.FeatureWindow Window(FeatureWindow window)
    {
        var wire = new V1.FeatureWindow
        {
            Symbols = { window.Symbols },
            Observed = Tensor(V1.DataType.Float32, window.Observed, WindowShape.Observed(window)),
            Known = Tensor(V1.DataType.Float32, window.Known, WindowShape.Known(window)),
            Static = Tensor(V1.DataType.Float32, window.Static, WindowShape.Static(window)),
            Location = Tensor(V1.DataType.Float64, window.Location, WindowShape.Level(window, window.Location)),
            Scale = Tensor(V1.DataType.Float64, window.Scale, WindowShape.Level(window, window.Scale)),
            SchemaHash = window.SchemaHash,
            AnchorPrice = { window.AnchorPrice.ToArray() },
            AsOfSession = SessionNumber.OfOrZero(window.AsOf),
            Features = { window.Features },
        };
        if (!window.Mask.IsEmpty)
            wire.Mask = Tensor(V1.DataType.Bool, window.Mask, WindowShape.Mask(window));
        return wire;
    }

    private static V1.Tensor Tensor<T>(V1.DataType type, ReadOnlyMemory<T> data, params ReadOnlySpan<int> shape)
        where T : unmanaged
    {
        var tensor = new V1.Tensor { Type = type, Data = ArrayBytes.Of(data) };
        foreach (var length in shape)
            tensor.Shape.Add(length);
        return tensor;
    }
}
