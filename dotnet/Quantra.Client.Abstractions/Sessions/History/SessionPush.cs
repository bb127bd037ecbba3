namespace Quantra.Client;

/// <summary>A push of one day's bars.</summary>
/// <param name="Bars">Bars of one session and some symbols; null = only flush.</param>
/// <param name="Covariates">Covariates of the bars.</param>
/// <param name="Flush">Whether to forecast although bars are missing.</param>
internal sealed record SessionPush(BarPanel? Bars, Covariates Covariates, bool Flush);
