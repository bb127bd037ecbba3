namespace Quantra.Client;

/// <summary>One question to one model: a panel of bars, or feature windows.</summary>
public sealed record PredictionRequest
{
    /// <summary>Asks for a forecast of several symbols.</summary>
    /// <param name="model">Which model.</param>
    /// <param name="bars">At least <see cref="ModelInfo.BarsNeeded"/> sessions, oldest first.</param>
    public PredictionRequest(ModelReference model, BarPanel bars)
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(bars);
        Model = model;
        Bars = bars;
    }

    /// <summary>Asks for a forecast of one symbol.</summary>
    /// <param name="model">Which model.</param>
    /// <param name="bars">At least <see cref="ModelInfo.BarsNeeded"/> bars, oldest first.</param>
    public PredictionRequest(ModelReference model, BarSeries bars)
        : this(model, Panel(bars))
    {
    }

    /// <summary>Asks for a forecast from features that the caller has computed.</summary>
    /// <param name="model">Which model.</param>
    /// <param name="window">Inputs made with the model's schema.</param>
    public PredictionRequest(ModelReference model, FeatureWindow window)
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(window);
        Model = model;
        Window = window;
    }

    /// <summary>Which model.</summary>
    public ModelReference Model { get; init; }

    /// <summary>The bars, unless <see cref="Window"/> is given.</summary>
    public BarPanel? Bars { get; }

    /// <summary>The feature windows, unless <see cref="Bars"/> are given.</summary>
    public FeatureWindow? Window { get; }

    /// <summary>What the model reads beside the bars; windows hold it already.</summary>
    public Covariates Covariates { get; init; } = Covariates.None;

    /// <summary>Comes back with the result; may be empty.</summary>
    public string RequestId { get; init; } = "";

    /// <summary>Whether to accept a last bar whose session has not closed yet.</summary>
    public bool AllowIncompleteLastBar { get; init; }

    /// <summary>What to do about missing sessions.</summary>
    public GapPolicy GapPolicy { get; init; }

    private static BarPanel Panel(BarSeries bars)
    {
        ArgumentNullException.ThrowIfNull(bars);
        return bars.ToPanel();
    }
}
