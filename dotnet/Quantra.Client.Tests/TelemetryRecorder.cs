using System.Collections.Concurrent;
using System.Diagnostics;
using System.Diagnostics.Metrics;

namespace Quantra.Client.Tests;

/// <summary>Records activities and metrics of the client.</summary>
internal sealed class TelemetryRecorder : IDisposable
{
    private const string Name = "Quantra.Client";
    private readonly ActivityListener _activities;
    private readonly MeterListener _meters = new();
    private long _retries;
    private long _started;

    public TelemetryRecorder()
    {
        _activities = new ActivityListener
        {
            ShouldListenTo = source => source.Name == Name,
            Sample = (ref ActivityCreationOptions<ActivityContext> _) => ActivitySamplingResult.AllDataAndRecorded,
            ActivityStarted = _ => Interlocked.Increment(ref _started),
            ActivityStopped = Activities.Add,
        };
        ActivitySource.AddActivityListener(_activities);
        _meters.InstrumentPublished = (instrument, listener) =>
        {
            if (instrument.Meter.Name == Name)
                listener.EnableMeasurementEvents(instrument);
        };
        _meters.SetMeasurementEventCallback<long>((instrument, value, tags, _) => Count(instrument, value, tags));
        _meters.SetMeasurementEventCallback<double>((_, value, _, _) => Seconds.Add(value));
        _meters.Start();
    }

    /// <summary>Number of started activities.</summary>
    public long Started => Interlocked.Read(ref _started);

    /// <summary>Stopped activities.</summary>
    public ConcurrentBag<Activity> Activities { get; } = [];

    /// <summary>Method, model and reason of each call.</summary>
    public ConcurrentBag<string> Calls { get; } = [];

    public ConcurrentBag<double> Seconds { get; } = [];

    public long Retries => Interlocked.Read(ref _retries);

    public void Dispose()
    {
        _activities.Dispose();
        _meters.Dispose();
    }

    private void Count(Instrument instrument, long value, ReadOnlySpan<KeyValuePair<string, object?>> tags)
    {
        if (instrument.Name == "quantra.client.retries")
            Interlocked.Add(ref _retries, value);
        else
            Calls.Add(string.Join(" ", tags.ToArray().Select(tag => tag.Value)));
    }
}
