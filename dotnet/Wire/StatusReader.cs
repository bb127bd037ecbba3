using Google.Protobuf;

namespace Quantra.Client.Wire;

/// <summary>Reads errors from the wire.</summary>
internal static class StatusReader
{
    private const string Domain = "quantra";

    /// <summary>The error of one instance.</summary>
    public static QuantraError Error(V1.Error error) => Of(error.Code, error.Reason, error.Message, error.Metadata);

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
                ? Of(read.Code, info.Reason, read.Message, info.Metadata)
                : null;
        }
        catch (InvalidProtocolBufferException)
        {
            return null; // a proxy's own trailer: like details of another domain, it does not count
        }
    }

    /// <summary>An error, of which nothing is missing; its map is copied, as that of a message could be cast and written to.</summary>
    private static QuantraError Of(int code, string reason, string message, IDictionary<string, string> metadata)
    {
        var status = (QuantraStatus)code;
        return new(
            status != QuantraStatus.Ok && Enum.IsDefined(status) ? status : QuantraStatus.Unknown,
            reason.Length > 0 ? reason : QuantraReason.Error,
            message.Length > 0 ? message : "the predictor does not say what went wrong",
            new Dictionary<string, string>(metadata).AsReadOnly());
    }
}
