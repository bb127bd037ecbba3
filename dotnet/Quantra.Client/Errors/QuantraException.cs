using Grpc.Core;

namespace Quantra.Client;

/// <summary>A call that failed; the only exception of a predictor beside those for cancellation and wrong arguments.</summary>
public sealed class QuantraException : Exception
{
    /// <summary>Makes an exception of an error.</summary>
    /// <param name="error">What went wrong.</param>
    /// <param name="innerException">What caused it, if it is known.</param>
    public QuantraException(QuantraError error, Exception? innerException = null)
        : base(MessageOf(error), innerException) => Error = error;

    /// <summary>What went wrong.</summary>
    public QuantraError Error { get; }

    /// <summary>gRPC's canonical code.</summary>
    public StatusCode Code => Error.Code;

    /// <summary>Stays the same between versions; see <see cref="QuantraReason"/>.</summary>
    public string Reason => Error.Reason;

    /// <summary>The message's facts as text, for example "have" and "need".</summary>
    public IReadOnlyDictionary<string, string> Metadata => Error.Metadata;

    private static string MessageOf(QuantraError error)
    {
        ArgumentNullException.ThrowIfNull(error);
        return error.Message;
    }
}
