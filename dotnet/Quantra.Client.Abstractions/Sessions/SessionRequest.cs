namespace Quantra.Client;

/// <summary>A request to open a session: a model and the initial history.</summary>
public sealed record SessionRequest
{
    /// <summary>Requests a session for several symbols.</summary>
    /// <param name="model">The model. A name without a version follows its champion.</param>
    /// <param name="bars">The history, oldest first; at least <see cref="ModelInfo.BarsNeeded"/> sessions.</param>
    public SessionRequest(ModelReference model, BarPanel bars)
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(bars);
        Model = model;
        Bars = bars;
    }

    /// <summary>Requests a session for one symbol.</summary>
    /// <param name="model">The model. A name without a version follows its champion.</param>
    /// <param name="bars">The history, oldest first; at least <see cref="ModelInfo.BarsNeeded"/> bars.</param>
    public SessionRequest(ModelReference model, BarSeries bars)
        : this(model, Panel(bars))
    {
    }

    /// <summary>The model.</summary>
    public ModelReference Model { get; init; }

    /// <summary>The history. Its calendar, currency and set of columns apply to the whole session.</summary>
    public BarPanel Bars { get; init; }

    /// <summary>Covariates of the history. Static ones apply to the whole session.</summary>
    public Covariates Covariates { get; init; } = Covariates.None;

    /// <summary>Unique id of the session within its predictor; empty = a generated one.</summary>
    public string SessionId { get; init; } = "";

    /// <summary>Whether to accept a last bar whose session has not closed. Applies to the whole session.</summary>
    public bool AllowIncompleteLastBar { get; init; }

    /// <summary>Whether to forecast also from bars that contradict the history of their symbol, with a warning. Applies to the whole session.</summary>
    public bool AcceptSuspectBars { get; init; }

    /// <summary>How to treat missing sessions. Applies to the whole session.</summary>
    public GapPolicy GapPolicy { get; init; }

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "session of small with bars of AAPL; 200 sessions, 2012-05-14 to 2013-03-01".</returns>
    public override string ToString()
    {
        var name = SessionId is { Length: > 0 } ? $"session {SessionId}" : "session";
        return $"{name} of {Model} with {Bars}{(Covariates is { IsEmpty: false } ? $"; {Covariates}" : "")}";
    }

    private static BarPanel Panel(BarSeries bars)
    {
        ArgumentNullException.ThrowIfNull(bars);
        return bars.ToPanel();
    }
}
