using System.Collections.ObjectModel;
using Google.Protobuf;

namespace Quantra.Client.Wire;

/// <summary>Reads errors from the wire.</summary>
internal static class StatusReader
{
    private const string Domain = "quantra";

    /// <summary>The error of one instance.</summary>
    public static QuantraError Error(V1.Error error) =>
        new((QuantraStatus)error.Code, error.Reason, error.Message, Copy(error.Metadata));

    /// <summary>The error in the bytes of a google.rpc.Status that a predictor of the same version made.</summary>
    public static QuantraError Error(byte[] status) => ErrorOrNull(status) ?? new(
        QuantraStatus.Internal,
        QuantraReason.Internal,
        "an error of the predictor cannot be read; use the same version of Quantra in Python and C#");

    /// <summary>The error in the bytes of a google.rpc.Status; null if it is not one of Quantra's.</summary>
    public static QuantraError? ErrorOrNull(byte[] status)
    {
        try
        {
            var read = Rpc.Status.Parser.ParseFrom(status);
            var detail = read.Details.FirstOrDefault(one => one.Is(Rpc.ErrorInfo.Descriptor));
            return detail?.Unpack<Rpc.ErrorInfo>() is { Domain: Domain } info
                ? new((QuantraStatus)read.Code, info.Reason, read.Message, Copy(info.Metadata))
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
