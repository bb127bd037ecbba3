using Google.Protobuf;

namespace Quantra.Client.Wire;

/// <summary>Reads error messages of the wire protocol.</summary>
internal static class StatusReader
{
    private const string Domain = "quantra";

    /// <summary>Reads the error of one instance.</summary>
    public static QuantraError Error(V1.Error error) => Of(error.Code, error.Reason, error.Message, error.Metadata);

    /// <summary>Reads a serialized google.rpc.Status from a predictor of the same version.</summary>
    public static QuantraError Error(byte[] status) => ErrorOrNull(status) ?? new(
        QuantraStatus.Internal,
        QuantraReason.Internal,
        "the predictor returned an unreadable error; use the same version of Quantra in Python and C#");

    /// <summary>Reads a serialized google.rpc.Status; null if it is not from Quantra.</summary>
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
            return null; // a proxy's trailer, ignored like details of another domain
        }
    }

    /// <summary>Creates an error with defaults for missing parts. The metadata are copied because a message's map is mutable.</summary>
    private static QuantraError Of(int code, string reason, string message, IDictionary<string, string> metadata)
    {
        var status = (QuantraStatus)code;
        return new(
            status != QuantraStatus.Ok && Enum.IsDefined(status) ? status : QuantraStatus.Unknown,
            reason.Length > 0 ? reason : QuantraReason.Error,
            message.Length > 0 ? message : "the predictor returned an error without a message",
            new Dictionary<string, string>(metadata).AsReadOnly());
    }
}
