using Grpc.Core;
using Quantra.Client.Wire;

namespace Quantra.Client.Transport;

/// <summary>Errors of calls that failed: of the server, or else of the transport, a proxy or the client itself.</summary>
internal static class TransportError
{
    private const string DetailsTrailer = "grpc-status-details-bin";

    private const string HungUp =
        "somebody is there and hung up; one with TLS does so to http://, which should be https:// then, and one with --tls-client-ca "
        + "to callers whose certificate its authorities do not vouch for";

    /// <summary>What gRPC of .NET, C++, Python, Go and Java say of a message that is too large.</summary>
    private static readonly string[] TooLarge = ["message exceeds", "larger than max"];

    /// <summary>What .NET says where no connection came about, and what to do then.</summary>
    private static readonly (string Said, string Advice)[] Advices =
    [
        ("Cannot determine the frame size", "a server is there, but speaks no TLS; use http://, or start it with --tls-cert"),
        ("RemoteCertificateNameMismatch", "its certificate is for other names; connect by one of those, or have one made for this one"),
        ("NotTimeValid", "its certificate has expired, or is not good yet; have whoever runs it put another in its place"),
        ("The remote certificate", "this program trusts no authority that vouches for its certificate; add the one that does"),
        ("did not complete the HTTP/2 handshake", HungUp),
        ("The SSL connection could not be established, see inner exception. IOException", HungUp),
    ];

    /// <summary>The error of a failed call: from the server's details, or else from the status alone.</summary>
    /// <param name="error">The call's status, as gRPC tells it.</param>
    /// <param name="target">The server's address.</param>
    /// <param name="timeout">How long the client waited.</param>
    public static QuantraError Of(RpcException error, string target, TimeSpan timeout) =>
        StatusReader.ErrorOrNull(error.Trailers.GetValueBytes(DetailsTrailer) ?? [])
        ?? OfConnecting(error.Status)
        ?? OfStatus(error.Status, target, timeout);

    /// <summary>The error of a ConnectCallback that knows itself why there is no connection.</summary>
    private static QuantraError? OfConnecting(Status status) => Causes(status).OfType<QuantraException>().FirstOrDefault()?.Error;

    private static QuantraError OfStatus(Status status, string target, TimeSpan timeout)
    {
        var code = CodeOf(status);
        return new((QuantraStatus)code, ReasonOf(code, status.Detail), MessageOf(code, status.Detail, target, timeout));
    }

    /// <summary>Whether a connection broke or never came about, which gRPC calls by another name than UNAVAILABLE.</summary>
    private static bool IsHiddenLoss(Status status) => OfConnecting(status) is null && status.StatusCode switch
    {
        StatusCode.Internal => Causes(status).Any(cause => cause is HttpRequestException or HttpIOException),
        StatusCode.Cancelled => Causes(status).Any(cause => cause is TimeoutException), // of connecting
        _ => false,
    };

    private static StatusCode CodeOf(Status status) => IsHiddenLoss(status) ? StatusCode.Unavailable : status.StatusCode;

    private static IEnumerable<Exception> Causes(Status status)
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
        StatusCode.Unavailable => $"no server answers at {target} ({detail}); {AdviceOn(detail)}",
        StatusCode.DeadlineExceeded => FormattableString.Invariant(
            $"no answer from {target} within {timeout.TotalSeconds:g} s; allow more time"),
        _ => $"{target}: {detail}",
    };

    private static string AdviceOn(string detail) =>
        Advices.FirstOrDefault(one => detail.Contains(one.Said, StringComparison.Ordinal)).Advice
        ?? "start one there, or check the address";
}
