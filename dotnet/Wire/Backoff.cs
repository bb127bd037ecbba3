using System.Security.Cryptography;

namespace Quantra.Client.Wire;

/// <summary>Delays between the attempts of a call.</summary>
internal static class Backoff
{
    private const double FirstSeconds = 0.1;
    private const double MaxSeconds = 0.5;

    /// <summary>Returns the delay that the error asks for. Otherwise 0.1 s, doubled with every failed attempt, up to 0.5 s.</summary>
    public static TimeSpan After(int attempts, QuantraError error) =>
        error.RetryAfter ?? TimeSpan.FromSeconds(Math.Min(FirstSeconds * Math.Pow(2, attempts - 1), MaxSeconds) * DrawJitter());

    /// <summary>Spreads the retries of callers that failed together.</summary>
    private static double DrawJitter() => RandomNumberGenerator.GetInt32(800, 1201) / 1000.0;
}
