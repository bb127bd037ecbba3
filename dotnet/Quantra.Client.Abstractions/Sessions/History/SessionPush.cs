namespace Quantra.Client;

/// <summary>Bars of one day, as they are pushed to a session.</summary>
/// <param name="Bars">Of one session, of some of the symbols; null = none, the day is flushed.</param>
/// <param name="Covariates">With the bars.</param>
/// <param name="Flush">Whether the day is to be answered although symbols of it have not come.</param>
internal sealed record SessionPush(BarPanel? Bars, Covariates Covariates, bool Flush);
