using Grpc.Core;

namespace Quantra.Client;

/// <summary>Whether an answer has one result for each that was asked for.</summary>
internal static class AnswerCount
{
    /// <summary>Compares the two.</summary>
    /// <exception cref="QuantraException">INTERNAL: they differ.</exception>
    public static void Check(int have, int need)
    {
        if (have == need)
            return;
        var message = FormattableString.Invariant(
            $"the answer has {have} results for {need} requests; give client and server the same version");
        throw QuantraError.Of(StatusCode.Internal, QuantraReason.Internal, message).ToException();
    }
}
