using System.Security.Cryptography;

namespace Quantra.Client.Wire;

/// <summary>How long to wait before another attempt.</summary>
internal static class Backoff
{
    private const double FirstSeconds = 0.1;
    private const double MostSeconds = 0.5;

    /// <summary>What the predictor says; or else a tenth of a second, twice as long each time, half a second at most.</summary>
    /// <param name="attempts">Those that have failed, from 1.</param>
    /// <param name="error">Of the last one.</param>
    public static TimeSpan After(int attempts, QuantraError error) =>
        error.RetryAfter ?? TimeSpan.FromSeconds(Math.Min(FirstSeconds * Math.Pow(2, attempts - 1), MostSeconds) * Jitter());

    /// <summary>Those who failed together do not come again together.</summary>
    private static double Jitter() => RandomNumberGenerator.GetInt32(800, 1201) / 1000.0;
}
