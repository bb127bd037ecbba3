using System.Globalization;

namespace Quantra.Client.Managed;

/// <summary>Creates the errors of path simulations, with the messages of every predictor.</summary>
internal static class PathError
{
    public static QuantraException Invalid(string message) => PredictionError.Of(QuantraStatus.InvalidArgument, QuantraReason.InvalidInput, message).ToException();

    /// <summary>Such as "1 symbol" or "2 symbols".</summary>
    public static string Count(int count, string noun) => string.Create(CultureInfo.InvariantCulture, $"{count} {noun}{(count == 1 ? "" : "s")}");
}
