using Google.Protobuf;
using Grpc.Core;

namespace Quantra.Client.Wire;

/// <summary>Reads errors from the wire.</summary>
internal static class StatusReader
{
    private const string Domain = "quantra";
    private const string DetailsTrailer = "grpc-status-details-bin";

    /// <summary>What gRPC of .NET, C++, Python, Go and Java say of a message that is too large.</summary>
    private static readonly string[] TooLarge = ["message exceeds", "larger than max"];

    /// <summary>The error of a failed call: from the server's details, or else from the status alone.</summary>
    /// <param name="error">The call's status.</param>
    /// <param name="target">The server's address.</param>
    /// <param name="timeout">How long the client waited.</param>
    public static QuantraError Error(RpcException error, string target, TimeSpan timeout) =>
        ErrorOrNull(error.Trailers.GetValueBytes(DetailsTrailer) ?? [])
        ?? QuantraError.Of(error.StatusCode, ReasonOf(error.Status), MessageOf(error.Status, target, timeout));

    /// <summary>The error of one instance.</summary>
    public static QuantraError Error(V1.Error error) =>
        new((StatusCode)error.Code, error.Reason, error.Message, error.Metadata);

    /// <summary>The error in the bytes of a google.rpc.Status; null if it is not one of Quantra's.</summary>
    public static QuantraError? ErrorOrNull(byte[] status)
    {
        try
        {
            var read = Rpc.Status.Parser.ParseFrom(status);
            var detail = read.Details.FirstOrDefault(one => one.Is(Rpc.ErrorInfo.Descriptor));
            return detail?.Unpack<Rpc.ErrorInfo>() is { Domain: Domain } info
                ? new((StatusCode)read.Code, info.Reason, read.Message, info.Metadata)
                : null;
        }
        catch (InvalidProtocolBufferException)
        {
            return null; // a proxy's own trailer: like details of another domain, it does not count
        }
    }

    /// <summary>The reason for a status that did not come from a Quantra server, but from the transport, a proxy or the client.</summary>
    private static string ReasonOf(Status status) => status.StatusCode switch
    {
        StatusCode.Unavailable => QuantraReason.Unavailable,
        StatusCode.DeadlineExceeded => QuantraReason.DeadlineExceeded,
        StatusCode.Cancelled => QuantraReason.Cancelled,
        StatusCode.ResourceExhausted when TooLarge.Any(words => status.Detail.Contains(words, StringComparison.Ordinal)) =>
            QuantraReason.RequestTooLarge,
        StatusCode.ResourceExhausted => QuantraReason.QueueFull,
        StatusCode.Internal => QuantraReason.Internal,
        _ => QuantraReason.Error,
    };

    private static string MessageOf(Status status, string target, TimeSpan timeout) => status.StatusCode switch
    {
        StatusCode.Unavailable => $"no server answers at {target} ({status.Detail}); start one there, or check the address",
        StatusCode.DeadlineExceeded => FormattableString.Invariant(
            $"no answer from {target} within {timeout.TotalSeconds:g} s; allow more time"),
        _ => $"{target}: {status.Detail}",
    };
}
