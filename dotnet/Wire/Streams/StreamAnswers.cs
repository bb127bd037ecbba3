namespace Quantra.Client.Wire;

/// <summary>Reads the responses of streams.</summary>
internal static class StreamAnswers
{
    private const string Advice = "use the same version of client and server";

    /// <summary>The result of a request for a forecast.</summary>
    public static PredictionResult Result(string name, V1.PredictStreamResponse response)
    {
        try
        {
            return new(name, Forecast(response), null);
        }
        catch (QuantraException failure)
        {
            return new(name, null, failure.Error);
        }
    }

    /// <summary>What became of a push.</summary>
    /// <exception cref="QuantraException">It was refused, or the answer cannot be read.</exception>
    public static PushResult Pushed(V1.PredictStreamResponse response) => response.OutcomeCase == V1.PredictStreamResponse.OutcomeOneofCase.Ack
        ? new(null, [.. response.Ack.WaitingFor])
        : new(Forecast(response), []);

    /// <summary>The forecast.</summary>
    /// <exception cref="QuantraException">The request was refused, or the answer cannot be read.</exception>
    public static Forecast Forecast(V1.PredictStreamResponse response) => response.OutcomeCase switch
    {
        V1.PredictStreamResponse.OutcomeOneofCase.Forecast => ResponseReader.Forecast(response.Forecast),
        V1.PredictStreamResponse.OutcomeOneofCase.Error => throw StatusReader.Error(response.Error).ToException(),
        _ => throw new QuantraError(QuantraStatus.Internal, QuantraReason.Internal, $"the answer has neither a forecast nor an error; {Advice}").ToException(),
    };
}
