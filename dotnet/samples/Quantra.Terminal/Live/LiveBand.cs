namespace Quantra.Terminal.Live;

/// <summary>Forecast prices of one day: the outer quantiles and the middle one.</summary>
internal readonly record struct LiveBand(double Low, double Median, double High);
