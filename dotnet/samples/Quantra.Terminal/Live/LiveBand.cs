namespace Quantra.Terminal.Live;

/// <summary>Forecast prices of one day: the outer quantiles and the median.</summary>
internal readonly record struct LiveBand(double Low, double Median, double High);
