namespace Quantra.Client.Hosting;

/// <summary>
/// Progress of a training: a <see cref="TrainingStage"/>, <see cref="TrainingStep"/>, <see cref="TrainingEpoch"/>,
/// <see cref="TrainingCheckpoint"/> or <see cref="TrainingNotice"/>. ToString returns one line, the same in every culture.
/// </summary>
public abstract record TrainingProgress;
