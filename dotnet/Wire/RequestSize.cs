using System.Globalization;
using Google.Protobuf;

namespace Quantra.Client.Wire;

/// <summary>How large a request may be.</summary>
internal static class RequestSize
{
    /// <summary>Refuses what the predictor would refuse after it came over the network.</summary>
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
            $"the request has {have} bytes, at most {most}; send fewer symbols, sessions or requests at once",
            new Dictionary<string, string> { ["have"] = have, ["most"] = most }).ToException();
    }
}
