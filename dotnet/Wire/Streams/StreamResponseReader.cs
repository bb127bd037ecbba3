namespace Quantra.Client.Wire;

/// <summary>Reads the responses of streams and sessions.</summary>
internal static class StreamResponseReader
{
    /// <summary>Reads the result of a request. An invalid response becomes the error of this result.</summary>
    public static PredictionResult Result(string id, V1.PredictStreamResponse response)
    {
        try
        {
            return new(id, Forecast(response), null);
        }
        catch (QuantraException failure)
        {
            return new(id, null, failure.Error);
        }
    }

    /// <summary>Reads the response to a push.</summary>
    /// <exception cref="QuantraException">The push was rejected, or the response is invalid.</exception>
    public static PushResult Push(V1.PredictStreamResponse response) => response.OutcomeCase == V1.PredictStreamResponse.OutcomeOneofCase.Ack
        ? new(null, [.. response.Ack.WaitingFor])
        : new(Forecast(response), []);

    /// <summary>Reads a forecast.</summary>
    /// <exception cref="QuantraException">The request was rejected, or the response is invalid.</exception>
    public static Forecast Forecast(V1.PredictStreamResponse response) => response.OutcomeCase switch
    {
        V1.PredictStreamResponse.OutcomeOneofCase.Forecast => ResponseReader.Forecast(response.Forecast),
        V1.PredictStreamResponse.OutcomeOneofCase.Error => throw StatusReader.Error(response.Error).ToException(),
        _ => throw InvalidResponse.Create($"it has neither a forecast nor an error"),
    };
}
