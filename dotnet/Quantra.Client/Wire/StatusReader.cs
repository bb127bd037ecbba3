using System.Collections.ObjectModel;
using Google.Protobuf;
using Grpc.Core;

namespace Quantra.Client.Wire;

/// <summary>Reads errors from the wire.</summary>
internal static class StatusReader
{
    private const string Domain = "quantra";
    private const string DetailsTrailer = "grpc-status-details-bin";

    /// <summary>The error of a failed call: from the server's details, or else from the status alone.</summary>
    /// <param name="error">The call's status.</param>
    /// <param name="target">The server's address.</param>
    /// <param name="timeout">How long the client waited.</param>
    public static QuantraError Error(RpcException error, string target, TimeSpan timeout) =>
        ErrorOrNull(error.Trailers.GetValueBytes(DetailsTrailer) ?? [])
        ?? TransportError.Of(error.Status, target, timeout);

    /// <summary>The error of one instance.</summary>
    public static QuantraError Error(V1.Error error) =>
        new((StatusCode)error.Code, error.Reason, error.Message, Copy(error.Metadata));

    /// <summary>The error in the bytes of a google.rpc.Status; null if it is not one of Quantra's.</summary>
    public static QuantraError? ErrorOrNull(byte[] status)
    {
        try
        {
            var read = Rpc.Status.Parser.ParseFrom(status);
            var detail = read.Details.FirstOrDefault(one => one.Is(Rpc.ErrorInfo.Descriptor));
            return detail?.Unpack<Rpc.ErrorInfo>() is { Domain: Domain } info
                ? new((StatusCode)read.Code, info.Reason, read.Message, Copy(info.Metadata))
                : null;
        }
        catch (InvalidProtocolBufferException)
        {
            return null; // a proxy's own trailer: like details of another domain, it does not count
        }
    }

    /// <summary>A map of a message could be cast and written to.</summary>
    private static ReadOnlyDictionary<string, string> Copy(IDictionary<string, string> metadata) =>
        new Dictionary<string, string>(metadata).AsReadOnly();
}
