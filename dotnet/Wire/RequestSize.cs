using System.Globalization;
using Google.Protobuf;

namespace Quantra.Client.Wire;

/// <summary>Checks the size of requests before they are sent.</summary>
internal static class RequestSize
{
    /// <exception cref="QuantraException">REQUEST_TOO_LARGE.</exception>
    public static void Check(IMessage request, int mostBytes)
    {
        var size = request.CalculateSize();
        if (size <= mostBytes)
            return;
        var (have, most) = (size.ToString(CultureInfo.InvariantCulture), mostBytes.ToString(CultureInfo.InvariantCulture));
        throw new QuantraError(
            QuantraStatus.ResourceExhausted,
            QuantraReason.RequestTooLarge,
            $"the request has {have} bytes, the limit is {most}; send fewer symbols, sessions or requests at once",
            new Dictionary<string, string> { ["have"] = have, ["most"] = most }).ToException();
    }
}
