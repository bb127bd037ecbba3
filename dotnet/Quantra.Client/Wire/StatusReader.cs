using Google.Protobuf;
using Grpc.Core;

namespace Quantra.Client.Wire;

/// <summary>Reads errors off the wire.</summary>
internal static class StatusReader
{
    private const string Domain = "quantra";
    private const string DetailsTrailer = "grpc-status-details-bin";

    /// <summary>The error of a failed call: the server's own details, else what the transport says.</summary>
    /// <param name="error">The call's status.</param>
    /// <param name="target">Who was asked.</param>
    /// <param name="timeout">How long an answer was waited for.</param>
    public static QuantraError Error(RpcException error, string target, TimeSpan timeout) =>
        ErrorInfo(error.Trailers.GetValueBytes(DetailsTrailer)) is { } info
            ? new(error.StatusCode, info.Reason, error.Status.Detail, info.Metadata)
            : QuantraError.Of(error.StatusCode, ReasonOf(error.StatusCode), MessageOf(error.Status, target, timeout));

    /// <summary>The error of one instance.</summary>
    public static QuantraError Error(V1.Error error) =>
        new((StatusCode)error.Code, error.Reason, error.Message, error.Metadata);

    private static Rpc.ErrorInfo? ErrorInfo(byte[]? details)
    {
        try
        {
            var any = details is null
                ? null
                : Rpc.Status.Parser.ParseFrom(details).Details.FirstOrDefault(one => one.Is(Rpc.ErrorInfo.Descriptor));
            return any?.Unpack<Rpc.ErrorInfo>() is { Domain: Domain } info ? info : null;
        }
        catch (InvalidProtocolBufferException)
        {
            return null; // a proxy's own trailer, as one of another domain: the code alone must do
        }
    }

    /// <summary>The reason of a status that no Quantra server made: the transport, a proxy or the client itself.</summary>
    private static string ReasonOf(StatusCode code) => code switch
    {
        StatusCode.Unavailable => QuantraReason.Unavailable,
        StatusCode.DeadlineExceeded => QuantraReason.DeadlineExceeded,
        StatusCode.Cancelled => QuantraReason.Cancelled,
        StatusCode.ResourceExhausted => QuantraReason.RequestTooLarge,
        StatusCode.Internal => QuantraReason.Internal,
        _ => QuantraReason.Error,
    };

    private static string MessageOf(Status status, string target, TimeSpan timeout) => status.StatusCode switch
    {
        StatusCode.Unavailable => $"nobody answers at {target} ({status.Detail}); start a server there, or check the address",
        StatusCode.DeadlineExceeded => FormattableString.Invariant(
            $"no answer from {target} within {timeout.TotalSeconds:g} s; allow more time"),
        _ => $"{target}: {status.Detail}",
    };
}
