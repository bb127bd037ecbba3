namespace Quantra.Client.Managed;

/// <summary>Creates the errors of path simulations, with the messages of every predictor.</summary>
internal static class PathError
{
    public static QuantraException Invalid(string message) => PredictionError.Of(QuantraStatus.InvalidArgument, QuantraReason.InvalidInput, message).ToException();
}
