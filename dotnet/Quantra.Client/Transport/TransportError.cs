using Grpc.Core;
using Quantra.Client.Wire;

namespace Quantra.Client.Transport;

/// <summary>Converts the errors of failed calls, whether from the server, the transport, a proxy or the client.</summary>
internal static class TransportError
{
    private const string DetailsTrailer = "grpc-status-details-bin";

    private const string ConnectionClosed =
        "a server accepted the connection and closed it; if it uses TLS, write https://; if it runs with --tls-client-ca, present a "
        + "client certificate that its authorities signed";

    /// <summary>What gRPC for .NET, C++, Python, Go and Java says about a message that is too large.</summary>
    private static readonly string[] TooLarge = ["message exceeds", "larger than max"];

    /// <summary>Parts of .NET's messages for failed connections, and the advice for each.</summary>
    private static readonly (string Part, string Advice)[] AdviceByMessage =
    [
        ("Cannot determine the frame size", "a server is running there without TLS; use http://, or start it with --tls-cert"),
        ("RemoteCertificateNameMismatch", "its certificate is for other host names; connect by one of those, or issue a certificate for this one"),
        ("NotTimeValid", "its certificate has expired or is not valid yet; ask the operator to replace it"),
        ("The remote certificate", "no trusted authority signed its certificate; trust the authority that did"),
        ("did not complete the HTTP/2 handshake", ConnectionClosed),
        ("The SSL connection could not be established, see inner exception. IOException", ConnectionClosed),
    ];

    /// <summary>Converts an error: from the server's details if there are any, else from the gRPC status.</summary>
    public static QuantraError Of(RpcException error, string target, TimeSpan timeout) =>
        StatusReader.ErrorOrNull(error.Trailers.GetValueBytes(DetailsTrailer) ?? [])
        ?? FromConnectCallback(error.Status)
        ?? FromStatus(error.Status, target, timeout);

    /// <summary>Returns the error of a ConnectCallback that threw a QuantraException.</summary>
    private static QuantraError? FromConnectCallback(Status status) => ListCauses(status).OfType<QuantraException>().FirstOrDefault()?.Error;

    private static QuantraError FromStatus(Status status, string target, TimeSpan timeout)
    {
        var code = GetCode(status);
        return new((QuantraStatus)code, ReasonOf(code, status.Detail), MessageOf(code, status.Detail, target, timeout));
    }

    /// <summary>Whether a connection failed although the status is not UNAVAILABLE.</summary>
    private static bool IsConnectionLoss(Status status) => FromConnectCallback(status) is null && status.StatusCode switch
    {
        StatusCode.Internal => ListCauses(status).Any(cause => cause is HttpRequestException or HttpIOException),
        StatusCode.Cancelled => ListCauses(status).Any(cause => cause is TimeoutException), // of the connection attempt
        _ => false,
    };

    private static StatusCode GetCode(Status status) => IsConnectionLoss(status) ? StatusCode.Unavailable : status.StatusCode;

    private static IEnumerable<Exception> ListCauses(Status status)
    {
        for (var cause = status.DebugException; cause is not null; cause = cause.InnerException)
            yield return cause;
    }

    private static string ReasonOf(StatusCode code, string detail) => code switch
    {
        StatusCode.Unavailable => QuantraReason.Unavailable,
        StatusCode.DeadlineExceeded => QuantraReason.DeadlineExceeded,
        StatusCode.Cancelled => QuantraReason.Cancelled,
        StatusCode.ResourceExhausted when TooLarge.Any(words => detail.Contains(words, StringComparison.Ordinal)) =>
            QuantraReason.RequestTooLarge,
        StatusCode.ResourceExhausted => QuantraReason.QueueFull,
        StatusCode.Unauthenticated => QuantraReason.Unauthenticated,
        StatusCode.PermissionDenied => QuantraReason.PermissionDenied,
        StatusCode.Internal => QuantraReason.Internal,
        _ => QuantraReason.Error,
    };

    private static string MessageOf(StatusCode code, string detail, string target, TimeSpan timeout) => code switch
    {
        StatusCode.Unavailable => $"no server answers at {target} ({detail}); {Advise(detail)}",
        StatusCode.DeadlineExceeded => FormattableString.Invariant(
            $"no response from {target} within {timeout.TotalSeconds:g} s; set a longer timeout"),
        _ => $"{target}: {detail}",
    };

    private static string Advise(string detail) =>
        AdviceByMessage.FirstOrDefault(entry => detail.Contains(entry.Part, StringComparison.Ordinal)).Advice
        ?? "start a server there, or check the address";
}
